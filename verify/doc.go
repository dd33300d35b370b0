// Package verify is the receiving side of webhooks: it tells requests that the sender
// signed from those that it did not. It needs the standard library only and knows the
// format of Standard Webhooks 1.0, which github.com/outhook/webhook sends by default,
// and the formats of Stripe, GitHub, Shopify and Slack.
//
//	mux.Handle("POST /in", verify.Middleware(secret)(handler))
//
// The handler then runs for verified requests only and reads the raw body as usual;
// [FromContext] gives it the message id, by which it should recognise a message that
// it has already dealt with: delivery is at least once. [Config.Dedupe] does that in
// front of the handler.
//
// For a rotation, give both secrets until the sender has stopped signing with the old
// one. A request is accepted when any signature in it fits any of the secrets.
//
// # Answers
//
// Unless [Config.OnError] says otherwise: 400 for missing or malformed headers and a
// body that cannot be read, 401 for a signature that fits no secret and for a
// timestamp outside the tolerance, 413 for a body over the limit, 409 for a message
// that another request is being handled for, 503 if the dedupe store fails. Whatever
// is not 2xx makes the sender try again later.
package verify
