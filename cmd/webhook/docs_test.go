package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	shellBlock = regexp.MustCompile("(?s)\n```(?:sh)?\n(.*?)\n```\n")
	inline     = regexp.MustCompile("`(webhook [a-z][^`]*)`")
)

// documented are the command lines that the documents show.
func documented(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	lines := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, page := range pages {
			raw, err := os.ReadFile(page)
			require.NoError(t, err)
			for _, block := range shellBlock.FindAllStringSubmatch(string(raw), -1) {
				for line := range strings.SplitSeq(block[1], "\n") {
					if strings.HasPrefix(line, "webhook ") {
						lines[line] = page
					}
				}
			}
			for _, m := range inline.FindAllStringSubmatch(string(raw), -1) {
				lines[m[1]] = page
			}
		}
	}
	return lines
}

// placeholder stands in a document for an id.
var placeholder = strings.NewReplacer(
	"ENDPOINT", "018f0000-0000-7000-8000-000000000001", "DELIVERY", "018f0000-0000-7000-8000-000000000002",
	"JOB", "018f0000-0000-7000-8000-000000000003", "'", "", `"`, "",
)

// quoted joins the words of a quotation, so that a line splits where a shell splits it.
var quoted = regexp.MustCompile(`'[^']*'`)

func TestCommandsInTheDocumentsExist(t *testing.T) {
	t.Parallel()
	lines := documented(t)
	assert.Greater(t, len(lines), 40, "the documents show commands")
	for line, page := range lines {
		line, _, _ = strings.Cut(line, " # ")
		words := strings.Fields(placeholder.Replace(quoted.ReplaceAllStringFunc(line, func(s string) string {
			return strings.ReplaceAll(s, " ", "_")
		})))[1:]
		root := (&app{getenv: func(string) string { return "" }}).command()
		root.InitDefaultCompletionCmd(words...)
		cmd, rest, err := root.Find(words)
		if !assert.NoError(t, err, "%s: %s", page, line) {
			continue
		}
		assert.NoError(t, cmd.ParseFlags(rest), "%s: %s", page, line)
		if args := cmd.Flags().Args(); len(args) > 0 {
			assert.NoError(t, cmd.ValidateArgs(args), "%s: %s", page, line)
		}
	}
}
