package verify_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
)

// signed is a request as the sender makes it.
func signed(secret webhook.Secret, id, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/in", strings.NewReader(body))
	err := webhook.StandardWebhooks().Sign(r.Context(), r.Header, webhook.SignInput{
		ID: id, Time: time.Now(), Body: []byte(body), Secrets: []webhook.Secret{secret},
	})
	if err != nil {
		panic(err)
	}
	return r
}

func ExampleMiddleware() {
	secret := webhook.NewSecret()

	mux := http.NewServeMux()
	mux.Handle("POST /in", verify.Middleware(secret.Reveal())(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			message, _ := verify.FromContext(r.Context())
			body, _ := io.ReadAll(r.Body)
			fmt.Printf("%s: %s\n", message.ID, body)
			w.WriteHeader(http.StatusNoContent)
		})))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, signed(secret, "msg_1", `{"paid":true}`))
	fmt.Println(w.Code)

	forged := signed(webhook.NewSecret(), "msg_2", `{"paid":true}`)
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, forged)
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	// Output:
	// msg_1: {"paid":true}
	// 204
	// 401 verify: no signature matches
}

// With a store, a message that arrives again is answered without the handler.
func ExampleNew() {
	secret := webhook.NewSecret()
	verifier, err := verify.New(verify.Config{
		Dedupe:  verify.Dedupe{Store: verify.NewMemoryStore(0)},
		Secrets: []string{secret.Reveal()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := verifier.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Println("handled")
	}))
	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, signed(secret, "msg_1", `{}`))
		fmt.Println(w.Code)
	}
	// Output:
	// handled
	// 200
	// 200
	// 200
}
