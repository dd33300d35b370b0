// Package offswitch lets tests of this repository run a dispatcher without some of
// the mechanisms that isolate endpoints, to show that what they prevent comes back.
// It is no option for users: none of the mechanisms is worth doing without.
package offswitch

import (
	"context"

	"github.com/outhook/webhook/internal/scheduler"
)

type key struct{}

// Without returns a context under which a dispatcher runs without the mechanisms.
func Without(ctx context.Context, off scheduler.Mechanisms) context.Context {
	return context.WithValue(ctx, key{}, off)
}

// From returns what is off; nothing, outside of tests.
func From(ctx context.Context) scheduler.Mechanisms {
	off, _ := ctx.Value(key{}).(scheduler.Mechanisms)
	return off
}
