package webhook

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

type contextKey struct{}

func TestALazyTimeoutIsLikeOneOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	type withTimeout = func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	for name, story := range map[string]func(parent context.Context, cancelParent func(), with withTimeout) []any{
		"its time is up": func(parent context.Context, _ func(), with withTimeout) []any {
			ctx, end := with(parent, time.Second)
			defer end()
			first := ctx.Err()
			began := time.Now()
			<-ctx.Done()
			return []any{first, time.Since(began), ctx.Err(), context.Cause(ctx)}
		},
		"its time is up and nobody waited": func(parent context.Context, _ func(), with withTimeout) []any {
			ctx, end := with(parent, time.Second)
			defer end()
			time.Sleep(time.Second)
			synctest.Wait()
			err := ctx.Err()
			<-ctx.Done()
			return []any{err, ctx.Err()}
		},
		"its parent ends": func(parent context.Context, cancelParent func(), with withTimeout) []any {
			ctx, end := with(parent, time.Second)
			defer end()
			cancelParent()
			err := ctx.Err()
			<-ctx.Done()
			return []any{err, ctx.Err()}
		},
		"it is ended": func(parent context.Context, _ func(), with withTimeout) []any {
			ctx, end := with(parent, time.Second)
			end()
			err := ctx.Err()
			<-ctx.Done()
			return []any{err, ctx.Err()}
		},
		"it is ended while somebody waits": func(parent context.Context, _ func(), with withTimeout) []any {
			ctx, end := with(parent, time.Second)
			go func() { time.Sleep(time.Millisecond); end() }()
			began := time.Now()
			<-ctx.Done()
			return []any{time.Since(began), ctx.Err()}
		},
		"it has children": func(parent context.Context, _ func(), with withTimeout) []any {
			ctx, end := with(parent, time.Second)
			defer end()
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			began := time.Now()
			<-child.Done()
			return []any{time.Since(began), child.Err(), child.Value(contextKey{})}
		},
		"it knows its deadline": func(parent context.Context, _ func(), with withTimeout) []any {
			sooner, cancel := context.WithTimeout(parent, time.Minute)
			defer cancel()
			ctx, end := with(sooner, time.Hour)
			defer end()
			a, _ := ctx.Deadline()
			ctx, end2 := with(sooner, time.Second)
			defer end2()
			b, _ := ctx.Deadline()
			return []any{a, b}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell := func(with withTimeout) (told []any) {
				synctest.Test(t, func(*testing.T) {
					parent, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "value"))
					defer cancel()
					told = story(parent, cancel, with)
				})
				return told
			}
			assert.Equal(t, tell(context.WithTimeout), tell(withLazyTimeout))
		})
	}
}
