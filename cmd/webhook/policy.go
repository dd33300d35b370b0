package main

import (
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

// policyFlags repeat on the command line what the service's own Transport allows beyond
// the strict default.
type policyFlags struct {
	allow     []string
	allowHTTP bool
}

func (f *policyFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.allow, "allow", nil, "a block of addresses that the service allows besides public ones, such as 127.0.0.1/32; may be repeated")
	cmd.Flags().BoolVar(&f.allowHTTP, "allow-http", false, "the service allows http URLs")
}

func (f *policyFlags) transport() (*webhook.Transport, error) {
	cfg := webhook.TransportConfig{AllowHTTP: f.allowHTTP}
	for _, text := range f.allow {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, usagef("--allow: %w", err)
		}
		cfg.Allow = append(cfg.Allow, webhook.AllowRule{
			Prefix: prefix, Ports: []webhook.PortRange{{From: 80, To: 80}, {From: 443, To: 443}, {From: 1024, To: 65535}},
		})
	}
	return webhook.NewTransport(cfg)
}

// config is the library's with that Transport.
func (f *policyFlags) config() (webhook.Config, error) {
	transport, err := f.transport()
	if err != nil {
		return webhook.Config{}, err
	}
	return webhook.Config{Transport: transport}, nil
}
