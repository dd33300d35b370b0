package oauth2auth_test

import (
	"fmt"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/oauth2auth"
)

func ExampleNew() {
	guarded, err := webhook.NewTransport(webhook.TransportConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	auth, err := oauth2auth.New(oauth2auth.Config{
		ClientID:     "outhook",
		ClientSecret: "from a secret store",
		Scopes:       []string{"hooks:write"},
		TokenURL:     "https://login.acme.example/oauth2/token",
		Transport:    guarded, // the customer chose the URL
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var _ webhook.Authenticator = auth
	fmt.Println("ready")
	// Output: ready
}
