package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin/internal/phrase"
)

func secretPages() []route {
	const one = "/endpoints/{endpoint_id}/secret"
	return []route{
		{method: http.MethodGet, pattern: one, serve: secretPage},
		{method: http.MethodPost, pattern: one, mutates: true, serve: rotateForm},
	}
}

// secretData is what the page of an endpoint's secrets shows.
type secretData struct {
	Endpoint endpointName
	Fresh    string // the secret that was just made
	Headline string
	Created  bool   // with the endpoint
	Address  string // where a reload leads, after a form: as deep as the form, as links are relative
	Secrets  []secretRow
	Overlaps []choice
	Overlap  formField
	Own      formField
	Snippets []snippet
}

// secretRow is one secret, which is not shown.
type secretRow struct {
	secretShape

	Tag tag
}

func secretPage(v *visit) error {
	e, err := v.endpointOfPath()
	if err != nil {
		return err
	}
	return v.renderSecret(http.StatusOK, e, secretData{})
}

func (v *visit) renderSecret(status int, e webhook.Endpoint, data secretData) error {
	data.Endpoint = v.endpointName(e)
	for i, s := range e.Secrets {
		row := secretRow{secretShape{ID: s.ID, Hint: s.Hint, CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt}, tag{"ok", "key", "current"}}
		if i > 0 {
			row.Tag = tag{"warn", "clock", "ending"}
		}
		data.Secrets = append(data.Secrets, row)
	}
	if data.Overlaps == nil {
		data.Overlaps = overlaps("86400")
	}
	data.Own.Name, data.Own.Label, data.Own.Mono = "secret", "Secret", true
	data.Own.Hint = "whsec_ and the base64 of 24 to 64 random bytes. Leave it empty to have one made."
	data.Own.Value = "" // whatever was typed in is not sent back
	data.Overlap.Name = "overlap_seconds"
	open := ""
	if data.Fresh != "" {
		open = "node"
	}
	var err error
	if data.Snippets, err = snippets(open); err != nil {
		return err
	}
	title := "Signing secret"
	if data.Created {
		title = "Endpoint created"
	}
	return v.render(status, "secret.html", title, data)
}

func overlaps(chosen string) []choice {
	return choicesOf(chosen,
		choice{Value: "3600", Word: "1 hour"},
		choice{Value: "86400", Word: "24 hours", Hint: "as a rule"},
		choice{Value: "604800", Word: "7 days", Hint: "the longest"},
		choice{Value: "0", Word: "not at all", Hint: "It has leaked: receivers that do not know the new one will refuse what they get."},
	)
}

// rotateForm makes a new secret and shows it: this once.
func rotateForm(v *visit) error {
	id, err := v.id("endpoint_id")
	if err != nil {
		return err
	}
	form, err := v.form()
	if err != nil {
		return err
	}
	var in rotateInput
	in.OverlapSeconds.Set = form.Has("overlap")
	in.Secret.Value = form.Get("secret")
	in.OverlapSeconds.Value, err = strconv.ParseFloat(form.Get("overlap"), 64)
	if err != nil && in.OverlapSeconds.Set {
		return v.refusedRotation(badField("overlap_seconds", "is no number of seconds"))
	}
	o, err := in.options()
	if err != nil {
		return v.refusedRotation(err)
	}
	e, err := v.rotateSecret(id, o)
	if err != nil {
		return v.refusedRotation(err)
	}
	headline := "The secret is rotated."
	if o.Overlap >= 0 && len(e.Secrets) > 1 {
		headline = "The secret is rotated. The one before signs beside it for " + wholeSpan(e.Secrets[1].ExpiresAt) + "."
	}
	return v.renderSecret(http.StatusOK, e, secretData{
		Fresh: e.Secret.Reveal(), Headline: headline, Address: "endpoints/" + id.String() + "/secret",
	})
}

// refusedRotation shows the form again, with what is wrong with it.
func (v *visit) refusedRotation(refused error) error {
	errors, ok := v.fieldErrors(refused)
	if !ok {
		return refused
	}
	e, err := v.endpointOfPath()
	if err != nil {
		return err
	}
	return v.renderSecret(http.StatusUnprocessableEntity, e, secretData{
		Overlaps: overlaps(v.r.PostForm.Get("overlap")),
		Overlap:  formField{Error: errors["overlap_seconds"] + errors["overlap"]},
		Own:      formField{Error: errors["secret"]},
	})
}

// wholeSpan is how long it is until then, to the minute, and in days where it is whole
// days.
func wholeSpan(t time.Time) string {
	const day = 24 * time.Hour
	d := time.Until(t).Round(time.Minute)
	switch {
	case d == day:
		return "24 hours"
	case d > 0 && d%day == 0:
		return strconv.Itoa(int(d/day)) + " days"
	}
	return phrase.Span(d)
}
