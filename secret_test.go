package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func secretOf(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }

func TestS06MalformedSecretsAreRefusedWithoutBeingEchoed(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"empty":                   "",
		"prefix alone":            "whsec_",
		"signing prefix alone":    "whsk_",
		"23 bytes":                secretOf(23),
		"65 bytes":                secretOf(65),
		"bad base64":              "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!",
		"URL alphabet":            "whsec_-_KQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"no padding":              "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
		"stray bits":              "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=",
		"line break at the end":   v1Secret + "\n",
		"line break in it":        v1Secret[:20] + "\r\n" + v1Secret[20:],
		"space before":            " " + v1Secret,
		"prefix in capitals":      "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"prefix twice":            "whsec_" + v1Secret,
		"public key":              v5Public,
		"text":                    "It's a Secret to Everybody",
		"signing key of 32 bytes": "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=",
		"signing key of halves that do not fit": "whsk_" + base64.StdEncoding.EncodeToString(
			append(NewSigningKey().KeyBytes()[:32], NewSigningKey().KeyBytes()[32:]...)),
	}
	for name, input := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret, err := ParseSecret(input)
			require.ErrorIs(t, err, ErrInvalidSecret)
			assert.True(t, secret.IsZero())
			if body := strings.TrimPrefix(strings.TrimPrefix(input, "whsec_"), "whsk_"); len(body) > 8 {
				assert.NotContains(t, err.Error(), body[:8])
			}
		})
	}
}

func TestB51EverySpellingOfASecretIsTheSameKey(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		v1Secret,
		"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",             // padding
		"whsec_+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/",                         // both special characters
		"whsec_" + base64.StdEncoding.EncodeToString(bytes00toFF()[:64]), // the longest
		secretOf(24), // the shortest
	} {
		secret, err := ParseSecret(input)
		require.NoError(t, err, input)
		assert.Equal(t, input, secret.Reveal())

		bare, err := ParseSecret(strings.TrimPrefix(input, "whsec_"))
		require.NoError(t, err, input)
		assert.True(t, bare.Equal(secret))

		decoded, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(input, "whsec_"))
		require.NoError(t, err)
		assert.Equal(t, decoded, secret.KeyBytes(), "the key is the decoded bytes")
	}
}

func TestGeneratedSecretsAreFreshAndParse(t *testing.T) {
	t.Parallel()
	for name, generate := range map[string]func() Secret{"whsec_": NewSecret, "whsk_": NewSigningKey} {
		first, second := generate(), generate()
		assert.False(t, first.Equal(second))
		assert.True(t, strings.HasPrefix(first.Reveal(), name))
		again, err := ParseSecret(first.Reveal())
		require.NoError(t, err)
		assert.True(t, again.Equal(first))
		assert.Equal(t, first, again, "equal secrets are deeply equal")
	}
	assert.Len(t, NewSecret().KeyBytes(), 32)
	assert.Len(t, NewSigningKey().KeyBytes(), 64)
}

func TestASigningKeyHasAPublicKey(t *testing.T) {
	t.Parallel()
	assert.Equal(t, v5Public, mustSecret(t, v5Secret).PublicKey())
	assert.Empty(t, mustSecret(t, v1Secret).PublicKey())
	assert.Empty(t, Secret{}.PublicKey())
}

func TestTextSecretsAreBounded(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		"", "hush", strings.Repeat("a", 15), strings.Repeat("a", 257), "0123456789abcdef\n", " 0123456789abcdef", "0123456789abcdef\xff",
		"01234567\x0089abcdef", "0123456789abcdef\u200b",
	} {
		_, err := ParseTextSecret(input)
		require.ErrorIs(t, err, ErrInvalidSecret, "%q", input)
	}
	for _, input := range []string{"It's a Secret to Everybody", strings.Repeat("a", 16), strings.Repeat("a", 256), "schlüssel-für-zwei"} {
		secret, err := ParseTextSecret(input)
		require.NoError(t, err)
		assert.Equal(t, input, secret.Reveal())
		assert.Equal(t, []byte(input), secret.KeyBytes())
	}
}

func TestHintsShowAPrefixAndFourCharacters(t *testing.T) {
	t.Parallel()
	text, err := ParseTextSecret("schlüssel-für-zwöi")
	require.NoError(t, err)
	assert.Equal(t, "whsec_…LaSw", mustSecret(t, v1Secret).Hint())
	assert.Equal(t, "whsk_…vg==", mustSecret(t, v5Secret).Hint())
	assert.Equal(t, "…zwöi", text.Hint())
	assert.Empty(t, Secret{}.Hint())
}

func TestTheZeroSecretIsNone(t *testing.T) {
	t.Parallel()
	var zero Secret
	assert.True(t, zero.IsZero())
	assert.Empty(t, zero.Reveal())
	assert.Nil(t, zero.KeyBytes())
	assert.True(t, zero.Equal(Secret{}))
	assert.False(t, zero.Equal(NewSecret()))
	assert.False(t, NewSecret().Equal(zero))
	assert.Empty(t, fmt.Sprint(zero))
	out, err := json.Marshal(struct {
		S Secret `json:",omitzero"`
	}{})
	require.NoError(t, err)
	assert.JSONEq(t, `{}`, string(out))
}

// forms returns every way in which value is likely to be printed by accident. Verbs that
// go vet refuses for it are among them, but for a Key, whose bytes are a plain array, not
// the two that pass by every method.
func forms(t *testing.T, value any, verbs ...string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, verb := range append(verbs, "%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%T", "%t", "%e") {
		out[verb] = fmt.Sprintf(verb, value)
	}
	out["error"] = fmt.Errorf("wrapped: %v", value).Error()
	var text, js bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("m", "a", value)
	slog.New(slog.NewJSONHandler(&js, nil)).Info("m", "a", value)
	out["slog text"], out["slog json"] = text.String(), js.String()
	if encoded, err := json.Marshal(value); err == nil {
		out["json"] = string(encoded)
	}
	if encoded, err := xml.Marshal(value); err == nil {
		out["xml"] = string(encoded)
	}
	var g bytes.Buffer
	if gob.NewEncoder(&g).Encode(value) == nil {
		out["gob"] = g.String()
	}
	func() {
		defer func() { out["panic"] = fmt.Sprint(recover()) }()
		panic(value)
	}()
	return out
}

// assertHidden fails if any form of value shows the key bytes or their spellings.
func assertHidden(t *testing.T, secrets [][]byte, value any, verbs ...string) {
	t.Helper()
	for form, out := range forms(t, value, verbs...) {
		for _, secret := range secrets {
			for _, spelling := range []string{
				string(secret), base64.StdEncoding.EncodeToString(secret), fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret),
				fmt.Sprint(binary.BigEndian.Uint32(secret)), fmt.Sprint(binary.LittleEndian.Uint32(secret)), // round keys
				strings.Trim(fmt.Sprint(secret), "[]"), strings.Trim(fmt.Sprintf("%#v", secret), "[]byte{}"),
			} {
				assert.NotContains(t, out, spelling, "%T in %s", value, form)
			}
		}
	}
}

func TestP06NothingThatHoldsASecretPrintsIt(t *testing.T) {
	t.Parallel()
	text, err := ParseTextSecret("It's a Secret to Everybody")
	require.NoError(t, err)
	key := NewKey("2026")
	cached := CachedSecretBox(InsecurePlaintext(), 0, 0)

	for _, secret := range []Secret{mustSecret(t, v1Secret), mustSecret(t, v5Secret), text} {
		raw := secret.KeyBytes()
		sealed, err := cached.Seal(t.Context(), []byte(secret.Reveal()), nil)
		require.NoError(t, err)
		_, err = cached.Open(t.Context(), sealed, nil)
		require.NoError(t, err)

		type unexported struct{ secret Secret }
		type exported struct {
			Secret  Secret
			Pointer *Secret
			Several []Secret
			ByName  map[string]Secret
			Any     any
		}
		holders := []any{
			secret, &secret,
			[]Secret{secret},
			map[string]Secret{"a": secret},
			unexported{secret},
			&unexported{secret},
			exported{secret, &secret, []Secret{secret}, map[string]Secret{"a": secret}, secret},
			SignInput{ID: "a", Secrets: []Secret{secret}},
			&SignInput{Secrets: []Secret{secret}},
			StandardWebhooks(), cached,
			struct{ Secrets SecretBox }{cached},
			struct{ box SecretBox }{cached},
		}
		for _, holder := range holders {
			assertHidden(t, [][]byte{raw, []byte(secret.Reveal())}, holder, "%p", "%w")
		}
	}
	for _, holder := range []any{
		key, &key,
		[]Key{key},
		struct{ Key Key }{key},
		NewKeyring(key), *NewKeyring(key),
		struct{ Secrets SecretBox }{NewKeyring(key)},
		struct{ box SecretBox }{NewKeyring(key)},
		struct{ k Keyring }{*NewKeyring(key)},
		NewKeyring(key, key), CachedSecretBox(NewKeyring(key), 0, 0),
	} {
		assertHidden(t, [][]byte{key.Bytes[:]}, holder)
	}
}

func TestASecretIsNoQueryArgument(t *testing.T) {
	t.Parallel()
	_, err := NewSecret().Value()
	require.Error(t, err)
}

func TestS11AnythingThatCannotBeOpenedIsUnreadable(t *testing.T) {
	t.Parallel()
	key, aad := NewKey("a"), secretAAD("acme", uuid.New(), uuid.New())
	box := NewKeyring(key)
	sealed, err := sealSecret(t.Context(), box, NewSecret(), aad)
	require.NoError(t, err)
	notASecret, err := box.Seal(t.Context(), []byte("whsec_short"), aad)
	require.NoError(t, err)
	shortText, err := box.Seal(t.Context(), []byte("text:hush"), aad)
	require.NoError(t, err)
	outage := errors.New("service does not answer")

	tests := map[string]struct {
		box    SecretBox
		sealed []byte
	}{
		"unknown key":         {NewKeyring(NewKey("b")), sealed},
		"another key's bytes": {NewKeyring(NewKey("a")), sealed},
		"damaged":             {box, sealed[:len(sealed)-1]},
		"empty":               {box, nil},
		"not a secret":        {box, notASecret},
		"not a text secret":   {box, shortText},
		"plaintext":           {box, []byte("plain1|" + v1Secret)},
		"sealed, no keyring":  {InsecurePlaintext(), sealed},
		"outage":              {brokenBox{outage}, sealed},
		"invalid keyring":     {NewKeyring(Key{}), sealed},
	}
	for name, tt := range tests {
		secret, err := openSecret(t.Context(), tt.box, tt.sealed, aad)
		require.ErrorIs(t, err, ErrSecretUnreadable, name)
		var typed *SecretUnreadableError
		require.ErrorAs(t, err, &typed, name)
		assert.Equal(t, name == "unknown key", typed.UnknownKey, name)
		assert.True(t, secret.IsZero(), name)
		assert.NotContains(t, err.Error(), "hush")
		assert.NotContains(t, err.Error(), "MfKQ")
	}
	_, err = openSecret(t.Context(), brokenBox{outage}, sealed, aad)
	require.ErrorIs(t, err, outage)
}

type brokenBox struct{ err error }

func (b brokenBox) Seal(context.Context, []byte, []byte) ([]byte, error) { return nil, b.err }
func (b brokenBox) Open(context.Context, []byte, []byte) ([]byte, error) { return nil, b.err }

func TestEveryKindOfSecretSurvivesSealing(t *testing.T) {
	t.Parallel()
	text, err := ParseTextSecret(v1Secret)
	require.NoError(t, err)
	for _, box := range []SecretBox{NewKeyring(NewKey("a")), InsecurePlaintext(), CachedSecretBox(NewKeyring(NewKey("a")), 0, 0)} {
		for _, secret := range []Secret{mustSecret(t, v1Secret), mustSecret(t, v5Secret), text} {
			sealed, err := sealSecret(t.Context(), box, secret, []byte("aad"))
			require.NoError(t, err)
			opened, err := openSecret(t.Context(), box, sealed, []byte("aad"))
			require.NoError(t, err)
			assert.True(t, opened.Equal(secret))
			assert.True(t, reflect.DeepEqual(opened, secret))
		}
		_, err := sealSecret(t.Context(), box, Secret{}, nil)
		require.ErrorIs(t, err, ErrInvalidSecret)
	}
	_, err = sealSecret(t.Context(), brokenBox{errors.New("no")}, text, nil)
	require.Error(t, err)
}

func FuzzParseSecret(f *testing.F) {
	for _, seed := range []string{v1Secret, v5Secret, v5Public, "", "whsec_", "whsk_", secretOf(23), secretOf(64), "text:abc", "whsec_\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		secret, err := ParseSecret(input)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidSecret)
			require.True(t, secret.IsZero())
			return
		}
		require.Contains(t, []string{input, "whsec_" + input}, secret.Reveal(), "nothing is repaired")
		again, err := ParseSecret(secret.Reveal())
		require.NoError(t, err)
		require.True(t, again.Equal(secret))
		require.NoError(t, StandardWebhooks().Sign(t.Context(), map[string][]string{}, v1Input(secret)))
	})
}
