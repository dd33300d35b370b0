package loadcache_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/loadcache"
)

// loads counts how often each key was loaded, and loads its name, repeated.
type loads map[string]int

func (l loads) of(key string, size int) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		l[key]++
		return []byte(strings.Repeat(key, size)), nil
	}
}

func TestWhatWasWantedLastIsKept(t *testing.T) {
	t.Parallel()
	c, l := loadcache.New[string](10), loads{}
	get := func(key string, size int) {
		t.Helper()
		b, err := c.Get(t.Context(), key, l.of(key, size))
		require.NoError(t, err)
		assert.Equal(t, strings.Repeat(key, size), string(b))
	}
	get("a", 5)
	get("b", 5)
	get("a", 5)
	get("c", 5) // b goes
	get("a", 5)
	get("c", 5)
	assert.Equal(t, loads{"a": 1, "b": 1, "c": 1}, l)
	get("b", 5)
	get("d", 11) // too large to keep, and nothing goes for it
	get("d", 11)
	get("b", 5)
	get("c", 5)
	assert.Equal(t, loads{"a": 1, "b": 2, "c": 1, "d": 2}, l)
}

func TestThoseWhoWantTheSameAtOnceLoadItOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, calls, released := loadcache.New[int](10), 0, make(chan struct{})
		for range 5 {
			go func() {
				b, err := c.Get(t.Context(), 1, func(context.Context) ([]byte, error) {
					calls++
					<-released
					return []byte("x"), nil
				})
				assert.NoError(t, err)
				assert.Equal(t, "x", string(b))
			}()
		}
		synctest.Wait()
		impatient, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := c.Get(impatient, 1, nil)
			assert.ErrorIs(t, err, context.Canceled)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(released)
		synctest.Wait()
		assert.Equal(t, 1, calls)
	})
}

func TestAnErrorIsNotKeptAndAnotherCallersEndIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, broken := loadcache.New[int](10), errors.New("broken")
		_, err := c.Get(t.Context(), 1, func(context.Context) ([]byte, error) { return nil, broken })
		require.ErrorIs(t, err, broken)

		first, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := c.Get(first, 1, func(ctx context.Context) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			assert.ErrorIs(t, err, context.Canceled)
		}()
		synctest.Wait()
		go func() {
			b, err := c.Get(t.Context(), 1, func(context.Context) ([]byte, error) { return []byte("y"), nil })
			assert.NoError(t, err)
			assert.Equal(t, "y", string(b))
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
	})
}

func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	t.Parallel()
	c := loadcache.New[int](10)
	assert.Panics(t, func() {
		_, _ = c.Get(t.Context(), 1, func(context.Context) ([]byte, error) { panic("store") })
	})
	b, err := c.Get(t.Context(), 1, func(context.Context) ([]byte, error) { return []byte("z"), nil })
	require.NoError(t, err)
	assert.Equal(t, "z", string(b))
}
