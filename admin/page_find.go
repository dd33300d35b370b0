package admin

import (
	"io/fs"
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// findPage leads to what has the id that somebody asks about: "did you send it?" begins
// with an id out of a log or a support ticket.
func findPage(v *visit) error {
	text := strings.TrimSpace(v.r.URL.Query().Get("q"))
	id, err := uuid.Parse(text)
	if err != nil {
		return v.render(http.StatusOK, "find.html", "Nothing found", findData{Text: shorten(text), Malformed: text != ""})
	}
	for _, kind := range []struct {
		path string
		look func(uuid.UUID) error
	}{
		{"deliveries/", func(id uuid.UUID) error { _, err := v.view.Delivery(v.ctx(), id); return err }},
		{"events/", func(id uuid.UUID) error { _, err := v.view.Event(v.ctx(), id); return err }},
		{"endpoints/", func(id uuid.UUID) error { _, err := v.view.Endpoint(v.ctx(), id); return err }},
		{"replays/", func(id uuid.UUID) error { _, err := v.view.Replay(v.ctx(), id); return err }},
	} {
		switch err := kind.look(id); {
		case err == nil:
			return v.redirect(kind.path + id.String())
		case v.problemOf(err).Status != http.StatusNotFound:
			return err
		}
	}
	return v.render(http.StatusNotFound, "find.html", "Nothing found", findData{Text: text})
}

type findData struct {
	Text      string
	Malformed bool
}

// snippet is how to verify a request in one language.
type snippet struct {
	Name, Title, Code string
	Open              bool
}

// snippetTitles are the languages of which there is a snippet, in the order in which
// they are shown.
var snippetTitles = []struct{ name, title string }{
	{"node", "Node"}, {"python", "Python"}, {"go", "Go"}, {"ruby", "Ruby"}, {"php", "PHP"}, {"java", "Java"},
}

// snippets returns how to verify a request, language by language. The files are those
// of docs/receivers.md, which are tested there.
func snippets(open string) ([]snippet, error) {
	list := make([]snippet, len(snippetTitles))
	for i, s := range snippetTitles {
		code, err := fs.ReadFile(assets, "snippets/"+s.name+".txt")
		if err != nil {
			return nil, err
		}
		list[i] = snippet{Name: s.name, Title: s.title, Code: string(code), Open: s.name == open}
	}
	return list, nil
}

func verifyPage(v *visit) error {
	list, err := snippets("node")
	if err != nil {
		return err
	}
	return v.render(http.StatusOK, "verify.html", "Verify this in your language", struct{ Snippets []snippet }{list})
}
