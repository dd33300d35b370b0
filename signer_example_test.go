package webhook_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/outhook/webhook"
)

func ExampleStandardWebhooks() {
	current, _ := webhook.ParseSecret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
	rotatedOut, _ := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

	h := make(http.Header)
	err := webhook.StandardWebhooks().Sign(context.Background(), h, webhook.SignInput{
		ID:      "msg_p5jXN8AQM9LWM0D4loKWxJek",
		Time:    time.Unix(1614265330, 0),
		Body:    []byte(`{"test": 2432232314}`),
		Secrets: []webhook.Secret{current, rotatedOut},
	})
	fmt.Println(err)
	fmt.Println(h.Get("webhook-id"))
	fmt.Println(h.Get("webhook-timestamp"))
	fmt.Println(h.Get("webhook-signature"))
	// Output:
	// <nil>
	// msg_p5jXN8AQM9LWM0D4loKWxJek
	// 1614265330
	// v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
}

// Receivers move from a home-grown header to Standard Webhooks one by one, while every
// request carries both.
func ExampleCombineSigners() {
	signer := webhook.CombineSigners(
		webhook.StandardWebhooks(),
		webhook.StripeSigner{Header: "Acme-Signature"},
	)
	secret, _ := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

	h := make(http.Header)
	err := signer.Sign(context.Background(), h, webhook.SignInput{
		ID:      "msg_p5jXN8AQM9LWM0D4loKWxJek",
		Time:    time.Unix(1614265330, 0),
		Body:    []byte(`{"test": 2432232314}`),
		Secrets: []webhook.Secret{secret},
	})
	fmt.Println(err, len(h))
	fmt.Println(h.Get("webhook-signature"))
	// Output:
	// <nil> 4
	// v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
}

func ExampleParseSecret() {
	secret, err := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	fmt.Println(secret, secret.Hint(), err)

	_, err = webhook.ParseSecret("whsec_dG9vIHNob3J0")
	fmt.Println(errors.Is(err, webhook.ErrInvalidSecret), err)
	// Output:
	// [redacted] whsec_…LaSw <nil>
	// true webhook: invalid secret: key of 9 bytes, want 24 to 64
}

// In production the keys come from the environment or a secret store, as the text that
// Key.Reveal and "openssl rand -base64 32" give.
func ExampleNewKeyring() {
	older, err := webhook.ParseKey("2025:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		fmt.Println(err)
		return
	}
	keyring := webhook.NewKeyring(webhook.NewKey("2026"), older)
	fmt.Println(keyring, keyring.Validate())

	ctx, where := context.Background(), []byte("tenant, endpoint and secret id")
	sealed, _ := keyring.Seal(ctx, []byte("whsec_…"), where)
	opened, err := keyring.Open(ctx, sealed, where)
	fmt.Println(string(opened), err)

	_, err = keyring.Open(ctx, sealed, []byte("another endpoint"))
	fmt.Println(errors.Is(err, webhook.ErrSecretUnreadable))
	// Output:
	// webhook.Keyring(2 keys, sealing with "2026") <nil>
	// whsec_… <nil>
	// true
}

// kms stands for the client of a key management service that knows no associated data.
type kms struct{ calls int }

func (k *kms) encrypt(plaintext []byte) []byte { return append([]byte("kms:"), plaintext...) }

func (k *kms) decrypt(ciphertext []byte) ([]byte, error) {
	k.calls++
	plaintext, ok := bytes.CutPrefix(ciphertext, []byte("kms:"))
	if !ok {
		return nil, errors.New("not a ciphertext of this service")
	}
	return bytes.Clone(plaintext), nil
}

// kmsBox makes a webhook.SecretBox of it: a digest of the associated data is sealed
// together with the plaintext and compared when it is opened.
type kmsBox struct{ kms *kms }

func (b kmsBox) Seal(_ context.Context, plaintext, associated []byte) ([]byte, error) {
	digest := sha256.Sum256(associated)
	return b.kms.encrypt(append(digest[:], plaintext...)), nil
}

func (b kmsBox) Open(_ context.Context, sealed, associated []byte) ([]byte, error) {
	opened, err := b.kms.decrypt(sealed)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(associated)
	plaintext, ok := bytes.CutPrefix(opened, digest[:])
	if !ok {
		return nil, errors.New("sealed for another endpoint")
	}
	return plaintext, nil
}

func ExampleCachedSecretBox() {
	service := &kms{}
	box := webhook.CachedSecretBox(kmsBox{service}, 10*time.Minute, 0)

	ctx, where := context.Background(), []byte("tenant, endpoint and secret id")
	sealed, _ := box.Seal(ctx, []byte("whsec_…"), where)
	for range 3 {
		opened, err := box.Open(ctx, sealed, where)
		fmt.Println(string(opened), err)
	}
	_, err := box.Open(ctx, sealed, []byte("another endpoint"))
	fmt.Println(err)
	fmt.Println(service.calls, "calls")
	// Output:
	// whsec_… <nil>
	// whsec_… <nil>
	// whsec_… <nil>
	// sealed for another endpoint
	// 2 calls
}

func ExampleAuthenticatorFunc() {
	credentials := map[string]webhook.Authenticator{"acme": webhook.BearerAuth("mF_9.B5f-4.1JqM")}
	byTenant := webhook.AuthenticatorFunc(func(ctx context.Context, h http.Header, in webhook.AuthInput) error {
		if a, ok := credentials[in.Tenant]; ok {
			return a.Authenticate(ctx, h, in)
		}
		return nil // the signature has to do
	})

	h := make(http.Header)
	err := byTenant.Authenticate(context.Background(), h, webhook.AuthInput{Tenant: "acme"})
	fmt.Println(h.Get("Authorization"), err)
	// Output: Bearer mF_9.B5f-4.1JqM <nil>
}

// Customers choose the format that their receivers know; the choice is the host's to
// keep, by endpoint or tenant.
func ExampleSignerFunc() {
	formats := map[string]webhook.Signer{"acme": webhook.GitHubSigner{}}
	byTenant := webhook.SignerFunc(func(ctx context.Context, h http.Header, in webhook.SignInput) error {
		if s, ok := formats[in.Tenant]; ok {
			return s.Sign(ctx, h, in)
		}
		return webhook.StandardWebhooks().Sign(ctx, h, in)
	})

	secret, _ := webhook.ParseTextSecret("It's a Secret to Everybody")
	h := make(http.Header)
	err := byTenant.Sign(context.Background(), h, webhook.SignInput{
		Tenant: "acme", ID: "msg_1", Time: time.Unix(1614265330, 0),
		Body: []byte("Hello, World!"), Secrets: []webhook.Secret{secret},
	})
	fmt.Println(h.Get("X-Hub-Signature-256"), err)
	// Output: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17 <nil>
}
