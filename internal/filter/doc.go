// Package filter compiles and evaluates the conditions that an endpoint may put on an
// event's payload (docs/design.md §2.2). A filter is a JSON object:
//
//	{
//	  "status": "paid",
//	  "amount": {"$gte": 10000, "$lt": 50000},
//	  "customer.country": {"$in": ["AT", "CH", "DE"]},
//	  "$or": [{"test": false}, {"test": {"$exists": false}}]
//	}
//
// All members of an object must hold. A key is an operator, which begins with $, or a
// path. A path's value is a plain value, short for $eq, or an object of conditions on
// what the path leads to; so {"customer": {"country": "AT"}} means the same as
// {"customer.country": "AT"}.
//
//	operator       operand              holds when the path leads to
//	$eq            any plain value      an equal value of the same type; null only to null
//	$ne            any plain value      anything else, or nowhere
//	$gt $gte       number or string     a value of the operand's type that is greater (or
//	$lt $lte                            equal), or smaller; strings are compared by bytes
//	$in            array of values      a value that is equal to one of them
//	$nin           array of values      anything else, or nowhere
//	$exists        true or false        something (null is something); or nowhere
//	$prefix        string               a string that begins with it
//	$and           array of conditions  (all of them hold)
//	$or            array of conditions  (at least one of them holds)
//	$not           conditions           (they do not all hold)
//
// Plain values are strings, numbers, true, false and null. Numbers are compared by
// their exact value, however many digits they have: 1, 1.0 and 10e-1 are equal, and
// 9007199254740993 and 9007199254740992 are not. Types are never converted: "1" is not
// 1. Strings are compared as they are after JSON's escapes, without normalisation.
//
// The segments of a path are separated by dots. A segment is a member of an object
// (the last one where a name is repeated), or, where the path has led to an array, the
// index of an element, from 0: "items.0.sku". A path matches nothing inside an array
// otherwise; "items.sku" does not look at each element. In a segment \. is a dot, \\ a
// backslash, and \$ begins a name with a dollar sign.
//
// A payload that is not valid JSON matches no filter, whatever its conditions say. A
// nil *Filter matches everything.
package filter
