// Package webhook adds outgoing webhooks to a Go service.
package webhook
