package main

import (
	"context"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

// act does something with the thing that has an id, if it is within the scope.
type act func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error

// oneCommand makes a command about one thing, which is named by its id: "show" and
// "ENDPOINT".
func (a *app) oneCommand(verb, noun, short string, do act) *cobra.Command {
	return a.oneCommandWith(verb, noun, short, func() (webhook.Config, error) { return webhook.Config{}, nil }, do)
}

// oneCommandWith makes one whose flags say how the library is configured.
func (a *app) oneCommandWith(verb, noun, short string, config func() (webhook.Config, error), do act) *cobra.Command {
	var tenant tenantFlag
	cmd := &cobra.Command{
		Use:   verb + " " + noun,
		Short: short,
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(noun, args[0])
			if err != nil {
				return err
			}
			cfg, err := config()
			if err != nil {
				return err
			}
			return a.withConfig(cmd.Context(), cfg, func(ctx context.Context, db *database) error {
				return do(ctx, db, tenant.scope(), id)
			})
		},
	}
	tenant.register(cmd)
	return cmd
}

// idFlag is an id that narrows a list; the zero one does not.
type idFlag struct{ id uuid.UUID }

func (f *idFlag) Type() string { return "id" }

func (f *idFlag) String() string {
	if f.id == uuid.Nil {
		return ""
	}
	return f.id.String()
}

func (f *idFlag) Set(text string) error {
	id, err := parseID("the id", text)
	f.id = id
	return err
}
