package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Defaults and sizes of CachedSecretBox.
const (
	defaultSecretTTL   = 5 * time.Minute
	defaultSecretCache = 10_000
	evictionSample     = 8
)

// CachedSecretBox remembers for ttl what box opened, so that a key management service
// is asked once per secret and not once per attempt. A [Keyring] does not need it.
//
// A ttl of 0 or less means 5 minutes: as long may a secret be used after the service
// has stopped to give it out. At most maximum secrets are kept, in the clear, in this
// process; 0 or less means 10,000. Concurrent calls for one secret become one. Errors
// are not remembered, and Seal is passed through.
func CachedSecretBox(box SecretBox, ttl time.Duration, maximum int) SecretBox {
	if ttl <= 0 {
		ttl = defaultSecretTTL
	}
	if maximum <= 0 {
		maximum = defaultSecretCache
	}
	return &cachedSecretBox{
		box: box, ttl: ttl, maximum: maximum,
		opened:  make(map[cacheKey]*cachedSecret),
		opening: make(map[cacheKey]*openCall),
	}
}

// cacheKey is a hash over the ciphertext and its associated data, so that a moved
// ciphertext is not served from another endpoint's entry.
type cacheKey [sha256.Size]byte

type cachedSecret struct {
	plaintext []byte
	expires   time.Time
}

type openCall struct {
	done      chan struct{} // closed when the other fields are set
	plaintext []byte
	err       error
}

type cachedSecretBox struct {
	box     SecretBox
	ttl     time.Duration
	maximum int

	mu      sync.Mutex                 // protects what follows; never held while box works
	opened  map[cacheKey]*cachedSecret // pointers, because fmt prints their addresses only
	opening map[cacheKey]*openCall
}

func (c *cachedSecretBox) Seal(ctx context.Context, plaintext, associated []byte) ([]byte, error) {
	return c.box.Seal(ctx, plaintext, associated)
}

func (c *cachedSecretBox) Open(ctx context.Context, sealed, associated []byte) ([]byte, error) {
	key := newCacheKey(sealed, associated)
	for {
		plaintext, call, leads := c.lookUp(key)
		if call == nil {
			return plaintext, nil
		}
		if leads {
			return c.lead(ctx, key, call, sealed, associated)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-call.done:
		}
		if call.err == nil {
			return slices.Clone(call.plaintext), nil
		}
		if !errors.Is(call.err, context.Canceled) && !errors.Is(call.err, context.DeadlineExceeded) {
			return nil, call.err
		}
		// The caller that led gave up; this one has not.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// lookUp returns a remembered plaintext, or else a call and whether the caller makes it.
func (c *cachedSecretBox) lookUp(key cacheKey) (plaintext []byte, call *openCall, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry, ok := c.opened[key]; ok && time.Now().Before(entry.expires) {
		return slices.Clone(entry.plaintext), nil, false
	}
	if call, ok := c.opening[key]; ok {
		return nil, call, false
	}
	call = &openCall{done: make(chan struct{}), err: errors.New("webhook: secret box panicked")}
	c.opening[key] = call
	return nil, call, true
}

func (c *cachedSecretBox) lead(
	ctx context.Context, key cacheKey, call *openCall, sealed, associated []byte,
) ([]byte, error) {
	defer func() { // also when box panics
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.opening, key)
		if call.err == nil {
			c.remember(key, call.plaintext)
		}
		close(call.done)
	}()
	plaintext, err := c.box.Open(ctx, sealed, associated)
	call.plaintext, call.err = slices.Clone(plaintext), err
	return plaintext, err
}

// remember looks at a few entries that the map's random order offers: expired ones go,
// and where there is still no room the one nearest to its expiry. With more endpoints
// than room that keeps a share of hits where the least recently used rule keeps none.
func (c *cachedSecretBox) remember(key cacheKey, plaintext []byte) {
	now := time.Now()
	var victim cacheKey
	var oldest time.Time
	looked := 0
	for k, entry := range c.opened {
		if !now.Before(entry.expires) {
			delete(c.opened, k)
		} else if oldest.IsZero() || entry.expires.Before(oldest) {
			victim, oldest = k, entry.expires
		}
		if looked++; looked == evictionSample {
			break
		}
	}
	if _, known := c.opened[key]; !known && len(c.opened) >= c.maximum {
		delete(c.opened, victim)
	}
	c.opened[key] = &cachedSecret{plaintext: plaintext, expires: now.Add(c.ttl)}
}

// Format keeps the remembered secrets out of whatever prints the box.
func (c *cachedSecretBox) Format(f fmt.State, _ rune) { io.WriteString(f, "webhook.CachedSecretBox") }

// LogValue keeps the remembered secrets out of log/slog.
func (c *cachedSecretBox) LogValue() slog.Value { return slog.StringValue("webhook.CachedSecretBox") }

// NeedsReseal asks the box behind the cache.
func (c *cachedSecretBox) NeedsReseal(sealed []byte) bool { return needsReseal(c.box, sealed) }

// Validate asks the box behind the cache.
func (c *cachedSecretBox) Validate() error {
	if c.box == nil {
		return errors.New("webhook: CachedSecretBox needs a box")
	}
	return validateSecretBox(c.box)
}

func newCacheKey(sealed, associated []byte) cacheKey {
	h := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(sealed)))
	h.Write(length[:])
	h.Write(sealed)
	h.Write(associated)
	return cacheKey(h.Sum(nil))
}
