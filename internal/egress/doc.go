// Package egress is the only way out: it decides which URLs and addresses a
// stranger may make this process connect to, and it sends the one request of an
// attempt within fixed bounds.
//
// The URL of a webhook endpoint comes from a customer, so three layers judge it,
// each of which fails closed:
//
//   - [Guard.CheckURL] applies the URL rules when an endpoint is written and again
//     at every attempt.
//   - [Guard.CheckAddr] judges the resolved address of every connection. The
//     address that was judged is the address that is dialled, so a name whose
//     answer changes in between gains nothing.
//   - [Guard.Control] judges once more what the operating system is about to
//     connect to.
//
// [Transport] is an [net/http.RoundTripper] that dials through a Guard, and
// [Client] turns one request into one [Result] with a [Class]. A Client works with
// any RoundTripper: URL rules, time limits, body limits and classes stay, but only
// a Transport judges addresses.
//
// The package knows nothing of endpoints, deliveries or stores.
package egress
