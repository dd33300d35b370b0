// Command portal is a small host application with a login of its own and two customers,
// Acme and Globex. Their users manage their webhooks under /settings/webhooks/, and the
// host's staff sees all of them under /admin/webhooks/. It keeps everything in an SQLite
// file that is gone when the program ends.
//
//	go run ./portal
//
// The login takes any of the names that it shows, without a password: it stands for the
// one that a real host has.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
)

func main() {
	address := flag.String("address", "127.0.0.1:8080", "where to serve")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *address); err != nil {
		fmt.Fprintln(os.Stderr, "portal:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	host, err := newHost(ctx, slog.New(slog.NewTextHandler(os.Stdout, nil)))
	if err != nil {
		return err
	}
	defer host.close()
	fmt.Printf("Log in at http://%s/\n", listener.Addr())
	return host.serve(ctx, listener)
}
