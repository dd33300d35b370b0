package webhook

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestP02ASealedSecretOpensOnlyWhereItWasSealed(t *testing.T) {
	t.Parallel()
	box := NewKeyring(NewKey("a"))
	endpoint, secret := uuid.New(), uuid.New()
	sealed, err := box.Seal(t.Context(), []byte("plaintext"), secretAAD("acme", endpoint, secret))
	require.NoError(t, err)

	opened, err := box.Open(t.Context(), sealed, secretAAD("acme", endpoint, secret))
	require.NoError(t, err)
	assert.Equal(t, "plaintext", string(opened))

	for name, aad := range map[string][]byte{
		"another endpoint": secretAAD("acme", uuid.New(), secret),
		"another secret":   secretAAD("acme", endpoint, uuid.New()),
		"another tenant":   secretAAD("umbrella", endpoint, secret),
		"swapped ids":      secretAAD("acme", secret, endpoint),
		"none":             nil,
	} {
		_, err := box.Open(t.Context(), sealed, aad)
		require.ErrorIs(t, err, ErrSecretUnreadable, name)
	}
}

func TestP02AssociatedDataIsDifferentForDifferentPlaces(t *testing.T) {
	t.Parallel()
	a, b := uuid.New(), uuid.New()
	seen := make(map[string]bool)
	for _, tenant := range []string{"", "a", "aa", strings.Repeat("a", 128), "a" + string(a[:]), string(a[:])} {
		for _, endpoint := range []uuid.UUID{a, b, {}} {
			for _, secret := range []uuid.UUID{a, b, {}} {
				aad := string(secretAAD(tenant, endpoint, secret))
				require.False(t, seen[aad])
				require.True(t, strings.HasPrefix(aad, "whk/v1"))
				seen[aad] = true
			}
		}
	}
}

func TestP03ADamagedCiphertextIsAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	box, aad := NewKeyring(NewKey("2026-01")), []byte("aad")
	sealed, err := box.Seal(t.Context(), []byte(v1Secret), aad)
	require.NoError(t, err)
	for i := range sealed {
		for bit := range 8 {
			flipped := bytes.Clone(sealed)
			flipped[i] ^= 1 << bit
			_, err := box.Open(t.Context(), flipped, aad)
			require.ErrorIs(t, err, ErrSecretUnreadable, "byte %d bit %d", i, bit)
		}
	}
	for i := range sealed {
		_, err := box.Open(t.Context(), sealed[:i], aad)
		require.ErrorIs(t, err, ErrSecretUnreadable, "%d bytes", i)
	}
	_, err = box.Open(t.Context(), append(bytes.Clone(sealed), 0), aad)
	require.ErrorIs(t, err, ErrSecretUnreadable)
}

func TestP04TwoSealsOfOnePlaintextDiffer(t *testing.T) {
	t.Parallel()
	box := NewKeyring(NewKey("a"))
	first, err := box.Seal(t.Context(), []byte("same"), nil)
	require.NoError(t, err)
	second, err := box.Seal(t.Context(), []byte("same"), nil)
	require.NoError(t, err)
	assert.NotEqual(t, first, second)
}

func TestP05KeysAreRotatedWithoutALostSecret(t *testing.T) {
	t.Parallel()
	oldKey, newKey, aad, secret := NewKey("2025"), NewKey("2026"), []byte("aad"), NewSecret()
	before := NewKeyring(oldKey)
	sealed, err := sealSecret(t.Context(), before, secret, aad)
	require.NoError(t, err)
	assert.False(t, needsReseal(before, sealed))

	during := NewKeyring(newKey, oldKey)
	opened, err := openSecret(t.Context(), during, sealed, aad)
	require.NoError(t, err, "the old ciphertext still opens")
	assert.True(t, opened.Equal(secret))
	require.True(t, needsReseal(during, sealed))

	resealed, err := resealSecret(t.Context(), during, during, sealed, aad)
	require.NoError(t, err)
	assert.False(t, needsReseal(during, resealed))

	after := NewKeyring(newKey)
	opened, err = openSecret(t.Context(), after, resealed, aad)
	require.NoError(t, err, "the old key can go")
	assert.True(t, opened.Equal(secret))

	_, err = openSecret(t.Context(), after, sealed, aad)
	var unreadable *SecretUnreadableError
	require.ErrorAs(t, err, &unreadable)
	assert.True(t, unreadable.UnknownKey)
	assert.Equal(t, "2025", unreadable.KeyID)
	require.ErrorContains(t, err, `key "2025"`)

	_, err = resealSecret(t.Context(), after, after, sealed, aad)
	require.ErrorIs(t, err, ErrSecretUnreadable)
}

func TestP05AHostLeavesPlaintextBehind(t *testing.T) {
	t.Parallel()
	keyring := NewKeyring(NewKey("a"))
	plain, err := sealSecret(t.Context(), InsecurePlaintext(), mustSecret(t, v1Secret), nil)
	require.NoError(t, err)
	assert.True(t, needsReseal(keyring, plain))
	assert.False(t, needsReseal(InsecurePlaintext(), plain))
	assert.True(t, needsReseal(brokenBox{}, plain), "a box that cannot tell gets all")
	sealed, err := resealSecret(t.Context(), InsecurePlaintext(), keyring, plain, nil)
	require.NoError(t, err)
	assert.False(t, needsReseal(keyring, sealed))
	assert.NotContains(t, string(sealed), "MfKQ")
}

func TestASealedSecretShowsNothingOfThePlaintext(t *testing.T) {
	t.Parallel()
	sealed, err := NewKeyring(NewKey("a")).Seal(t.Context(), []byte(v1Secret), nil)
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(sealed, []byte("v1\x01a")))
	assert.Len(t, sealed, 2+1+1+12+len(v1Secret)+16)
	assert.NotContains(t, string(sealed), "whsec_")
}

func TestKeysParseStrictlyAndAreNotEchoed(t *testing.T) {
	t.Parallel()
	key := NewKey("2026-01.a_B")
	parsed, err := ParseKey(key.Reveal())
	require.NoError(t, err)
	assert.Equal(t, key, parsed)

	encoded := strings.TrimPrefix(key.Reveal(), "2026-01.a_B:")
	for name, input := range map[string]string{
		"empty":          "",
		"no id":          encoded,
		"empty id":       ":" + encoded,
		"no key":         "a:",
		"swapped":        encoded + ":a",
		"long id":        strings.Repeat("a", 65) + ":" + encoded,
		"bad id":         "a b:" + encoded,
		"31 bytes":       "a:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==",
		"33 bytes":       "a:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g",
		"all zero":       "a:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"line break":     "a:" + encoded + "\n",
		"passphrase":     "a:correct horse battery staple",
		"hex":            "a:" + strings.Repeat("0f", 32),
		"without the =":  "a:" + strings.TrimSuffix(encoded, "="),
		"another prefix": "whsec_" + encoded,
	} {
		parsed, err := ParseKey(input)
		require.ErrorIs(t, err, ErrInvalidKey, name)
		assert.Equal(t, Key{}, parsed, name)
		assert.NotContains(t, err.Error(), encoded[:8], name)
	}
}

func TestAKeyringReportsEveryProblemAndSealsNothing(t *testing.T) {
	t.Parallel()
	good := NewKey("good")
	same := good
	same.ID = "same"
	for name, keyring := range map[string]*Keyring{
		"nil":        nil,
		"zero value": {},
		"zero key":   NewKeyring(Key{ID: "a"}),
		"empty id":   NewKeyring(NewKey("")),
		"bad id":     NewKeyring(NewKey("a|b")),
		"long id":    NewKeyring(NewKey(strings.Repeat("a", 65))),
		"twice":      NewKeyring(good, NewKey("good")),
		"same bytes": NewKeyring(good, same),
		"older":      NewKeyring(good, Key{}),
	} {
		require.ErrorIs(t, keyring.Validate(), ErrInvalidKey, name)
		require.ErrorIs(t, validateSecretBox(CachedSecretBox(keyring, 0, 0)), ErrInvalidKey, name)
		_, err := keyring.Seal(t.Context(), []byte("p"), nil)
		require.ErrorIs(t, err, ErrInvalidKey, name)
		_, err = keyring.Open(t.Context(), []byte("p"), nil)
		require.ErrorIs(t, err, ErrInvalidKey, name)
		assert.Equal(t, "webhook.Keyring(invalid)", keyring.String(), name)
	}
	err := NewKeyring(Key{ID: "a"}, NewKey("b c")).Validate()
	require.ErrorContains(t, err, "all zero")
	require.ErrorContains(t, err, "id has a character")

	require.NoError(t, validateSecretBox(NewKeyring(good, NewKey("other"))))
	require.NoError(t, validateSecretBox(InsecurePlaintext()))
	require.Error(t, validateSecretBox(CachedSecretBox(nil, 0, 0)))
	assert.Equal(t, `webhook.Keyring(1 keys, sealing with "good")`, NewKeyring(good).String())
}

// countingBox counts what reaches it and opens by removing a prefix.
type countingBox struct {
	opens atomic.Int64
	delay time.Duration
	err   error
}

func (b *countingBox) Seal(_ context.Context, plaintext, associated []byte) ([]byte, error) {
	return append(append([]byte("kms"), associated...), plaintext...), b.err
}

func (b *countingBox) Open(ctx context.Context, sealed, associated []byte) ([]byte, error) {
	b.opens.Add(1)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(b.delay):
	}
	if b.err != nil {
		return nil, b.err
	}
	plaintext, ok := bytes.CutPrefix(sealed, append([]byte("kms"), associated...))
	if !ok {
		return nil, errors.New("moved")
	}
	return bytes.Clone(plaintext), nil
}

func TestACachedBoxAsksOnceForEachSecretUntilItsTimeIsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &countingBox{delay: time.Second}
		box := CachedSecretBox(service, time.Minute, 0)
		sealed, err := box.Seal(t.Context(), []byte("secret"), []byte("A"))
		require.NoError(t, err)

		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				plaintext, err := box.Open(t.Context(), sealed, []byte("A"))
				assert.NoError(t, err)
				assert.Equal(t, "secret", string(plaintext))
				clear(plaintext) // a caller may: it is its own copy
			})
		}
		wg.Wait()
		assert.EqualValues(t, 1, service.opens.Load(), "twenty at once are one call")

		time.Sleep(59 * time.Second)
		_, err = box.Open(t.Context(), sealed, []byte("A"))
		require.NoError(t, err)
		assert.EqualValues(t, 1, service.opens.Load())

		time.Sleep(time.Second)
		_, err = box.Open(t.Context(), sealed, []byte("A"))
		require.NoError(t, err)
		assert.EqualValues(t, 2, service.opens.Load(), "the minute is over")
	})
}

func TestACachedBoxDoesNotServeAMovedSecret(t *testing.T) {
	t.Parallel()
	box := CachedSecretBox(&countingBox{}, 0, 0)
	sealed, err := box.Seal(t.Context(), []byte("secret"), []byte("A"))
	require.NoError(t, err)
	_, err = box.Open(t.Context(), sealed, []byte("A"))
	require.NoError(t, err)
	_, err = box.Open(t.Context(), sealed, []byte("B"))
	require.Error(t, err)
}

func TestACachedBoxRemembersNoError(t *testing.T) {
	t.Parallel()
	service := &countingBox{err: errors.New("outage")}
	box := CachedSecretBox(service, 0, 0)
	_, err := box.Open(t.Context(), []byte("kmsAsecret"), []byte("A"))
	require.ErrorContains(t, err, "outage")
	service.err = nil
	plaintext, err := box.Open(t.Context(), []byte("kmsAsecret"), []byte("A"))
	require.NoError(t, err)
	assert.Equal(t, "secret", string(plaintext))
	assert.True(t, needsReseal(box, nil))
}

func TestACachedBoxDoesNotLetOneCallersCancellationFailAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &countingBox{delay: time.Second}
		box := CachedSecretBox(service, 0, 0)
		leader, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := box.Open(leader, []byte("kmsAsecret"), []byte("A"))
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		impatient, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		wg.Go(func() {
			_, err := box.Open(impatient, []byte("kmsAsecret"), []byte("A"))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		wg.Go(func() {
			plaintext, err := box.Open(t.Context(), []byte("kmsAsecret"), []byte("A"))
			assert.NoError(t, err)
			assert.Equal(t, "secret", string(plaintext))
		})
		time.Sleep(10 * time.Millisecond)
		cancel()
		wg.Wait()
	})
}

func TestACachedBoxIsBounded(t *testing.T) {
	t.Parallel()
	service := &countingBox{}
	box := CachedSecretBox(service, time.Hour, 50)
	open := func(i int) {
		_, err := box.Open(t.Context(), []byte("kms"+strings.Repeat("x", i)), nil)
		require.NoError(t, err)
	}
	for i := range 200 {
		open(i)
	}
	assert.Len(t, box.(*cachedSecretBox).opened, 50)
	assert.Empty(t, box.(*cachedSecretBox).opening)
	before := service.opens.Load()
	open(199)
	assert.Equal(t, before, service.opens.Load(), "the newest is remembered")
}

func TestACachedBoxSurvivesAPanicBehindIt(t *testing.T) {
	t.Parallel()
	box := CachedSecretBox(panickingBox{}, 0, 0)
	for range 2 { // the second call must not wait for the first for ever
		assert.Panics(t, func() { _, _ = box.Open(t.Context(), nil, nil) })
	}
}

type panickingBox struct{ SecretBox }

func (panickingBox) Open(context.Context, []byte, []byte) ([]byte, error) { panic("kms") }

func FuzzKeyringOpen(f *testing.F) {
	key := Key{ID: "a", Bytes: [32]byte{1}}
	box := NewKeyring(key)
	sealed, err := box.Seal(f.Context(), []byte(v1Secret), []byte("aad"))
	require.NoError(f, err)
	for _, seed := range [][]byte{sealed, sealed[:20], nil, []byte("v1"), []byte("v1\x00"), []byte("v1\xffa"), []byte("v2\x01a"), []byte("plain1|x")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		plaintext, err := box.Open(t.Context(), input, []byte("aad"))
		box.NeedsReseal(input)
		if err == nil {
			require.Equal(t, v1Secret, string(plaintext), "forged")
			return
		}
		require.ErrorIs(t, err, ErrSecretUnreadable)
		_, err = openSecret(t.Context(), InsecurePlaintext(), input, nil)
		if err != nil {
			require.ErrorIs(t, err, ErrSecretUnreadable)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{NewKey("a").Reveal(), "", ":", "a:", "a:AAAA", "a:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		key, err := ParseKey(input)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidKey)
			return
		}
		require.Equal(t, input, key.Reveal())
		require.NoError(t, NewKeyring(key).Validate())
	})
}

func BenchmarkKeyringOpen(b *testing.B) {
	box, aad := NewKeyring(NewKey("a")), secretAAD("acme", uuid.New(), uuid.New())
	sealed, err := sealSecret(b.Context(), box, NewSecret(), aad)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := openSecret(b.Context(), box, sealed, aad); err != nil {
			b.Fatal(err)
		}
	}
}
