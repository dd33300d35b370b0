package admin_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/admin"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

const documentFile = "../docs/openapi.json"

func TestTheDocumentInDocsIsTheOneThatIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	got := w.ask(w.ops, "ops", "GET", "/api/openapi.json", nil)
	require.Equal(t, http.StatusOK, got.Status)
	var doc any
	require.NoError(t, json.Unmarshal([]byte(got.Body), &doc))
	pretty, err := json.MarshalIndent(doc, "", "  ")
	require.NoError(t, err)
	pretty = append(pretty, '\n')
	if *update {
		require.NoError(t, os.WriteFile(documentFile, pretty, 0o600))
	}
	have, err := os.ReadFile(documentFile)
	require.NoError(t, err)
	assert.Equal(t, string(pretty), string(have), "run go test ./admin -run Document -update")
}

func TestTheDocumentIsOpenAPI31(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	for _, h := range []*admin.Handler{w.ops, w.portal} {
		d := documentOf(w, h)
		assert.Equal(t, "3.1.0", d.root["openapi"])
		assert.NotEmpty(t, d.root["info"].(map[string]any)["title"])
		ids := map[string]bool{}
		for _, op := range d.operations {
			assert.False(t, ids[op.id], "operationId %s occurs twice", op.id)
			ids[op.id] = true
			assert.NotEmpty(t, op.doc["summary"], op.id)
			assert.NotEmpty(t, op.doc["responses"], op.id)
			assert.Len(t, op.pathParams(), strings.Count(op.path, "{"), "%s describes its path's parameters", op.path)
		}
		// Every reference leads somewhere.
		raw, err := json.Marshal(d.root)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`"\$ref":"([^"]+)"`).FindAllStringSubmatch(string(raw), -1) {
			assert.NotNil(t, d.resolve(map[string]any{"$ref": m[1]}), m[1])
		}
	}
}

func TestThePortalsDocumentHasNothingOfTheOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvents)
	ops, portal := documentOf(w, w.ops), documentOf(w, w.portal)
	for _, op := range portal.operations {
		for _, p := range op.params() {
			assert.NotEqual(t, "tenant", p["name"], op.id)
		}
	}
	names := func(d *document) []string {
		var ids []string
		for _, op := range d.operations {
			ids = append(ids, op.id)
		}
		return ids
	}
	assert.Subset(t, names(ops), names(portal))
	assert.NotContains(t, names(portal), "disableEndpoint")
	assert.Contains(t, names(ops), "disableEndpoint")
}

func TestEventsCannotBePostedUnlessTheHostSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.ask(w.portal, "acme", "POST", "/api/events", map[string]any{"type": "a.b", "payload": 1})
	assert.Contains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, got.Status)
	assert.NotContains(t, w.ask(w.portal, "acme", "GET", "/api/openapi.json", nil).Body, "enqueueEvent")
}

// document is an OpenAPI document as a test reads it.
type document struct {
	root       map[string]any
	operations []apiOperation
}

type apiOperation struct {
	id, method, path string
	doc              map[string]any
	pattern          *regexp.Regexp
	shared           []any // parameters of the path
}

func documentOf(w *world, h *admin.Handler) *document {
	w.t.Helper()
	w.mu.Lock()
	d := w.documents[h]
	w.mu.Unlock()
	if d != nil {
		return d
	}
	who := "acme"
	if h == w.ops {
		who = "ops"
	}
	body := w.serve(h, who, "GET", "/api/openapi.json", nil).Body
	d = &document{}
	require.NoError(w.t, json.Unmarshal([]byte(body), &d.root))
	paths := d.root["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := paths[path].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(item)) {
			if method == "parameters" {
				continue
			}
			op := item[method].(map[string]any)
			pattern := "^" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`) + "$"
			shared, _ := item["parameters"].([]any)
			d.operations = append(d.operations, apiOperation{
				id: op["operationId"].(string), method: strings.ToUpper(method), path: path, doc: op,
				pattern: regexp.MustCompile(pattern), shared: shared,
			})
		}
	}
	w.mu.Lock()
	w.documents[h] = d
	w.mu.Unlock()
	return d
}

func (op apiOperation) params() []map[string]any {
	own, _ := op.doc["parameters"].([]any)
	var params []map[string]any
	for _, p := range append(slices.Clone(op.shared), own...) {
		params = append(params, p.(map[string]any))
	}
	return params
}

func (op apiOperation) pathParams() []string {
	var names []string
	for _, p := range op.params() {
		if p["in"] == "path" {
			names = append(names, p["name"].(string))
		}
	}
	return names
}

func (op apiOperation) queryParams() []string {
	var names []string
	for _, p := range op.params() {
		if p["in"] == "query" {
			names = append(names, p["name"].(string))
		}
	}
	return names
}

func (op apiOperation) mutates() bool { return op.method != "GET" && op.id != "estimateReplay" }

// success is the status and the schema of the answer when all is well.
func (op apiOperation) success() int {
	for status := range op.doc["responses"].(map[string]any) {
		if n, _ := strconv.Atoi(status); n > 200 && n < 300 {
			return n
		}
	}
	return 200
}

func (d *document) find(method, path string) (apiOperation, bool) {
	for _, op := range d.operations {
		// dry-run is no id: what is longer in the document goes first.
		if op.method == method && op.path == path {
			return op, true
		}
	}
	for _, op := range d.operations {
		if op.method == method && op.pattern.MatchString(path) {
			return op, true
		}
	}
	return apiOperation{}, false
}

func (d *document) resolve(schema map[string]any) map[string]any {
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		var at any = d.root
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			m, ok := at.(map[string]any)
			if !ok {
				return nil
			}
			at = m[part]
		}
		schema, ok = at.(map[string]any)
		if !ok {
			return nil
		}
	}
}

// check requires that an answer is one that the document tells of.
func (d *document) check(t *testing.T, method, path string, got answer) {
	t.Helper()
	op, ok := d.find(method, path)
	if !ok {
		require.GreaterOrEqual(t, got.Status, 400, "%s %s succeeded and is not in the document", method, path)
		return
	}
	response, ok := op.doc["responses"].(map[string]any)[strconv.Itoa(got.Status)].(map[string]any)
	require.True(t, ok, "%s answered %d, which the document does not tell of: %s", op.id, got.Status, got.Body)
	content, _ := d.resolve(response)["content"].(map[string]any)
	if len(content) == 0 {
		require.Empty(t, got.Body, op.id)
		return
	}
	media, ok := content[got.Header.Get("Content-Type")].(map[string]any)
	require.True(t, ok, "%s answered with the media type %q", op.id, got.Header.Get("Content-Type"))
	if headers, ok := response["headers"].(map[string]any); ok {
		for name := range headers {
			require.NotEmpty(t, got.Header.Get(name), "%s has no %s", op.id, name)
		}
	}
	schema, ok := media["schema"].(map[string]any)
	if !ok {
		return
	}
	var value any
	require.NoError(t, json.Unmarshal([]byte(got.Body), &value), op.id)
	require.NoError(t, d.fits(schema, value, "$"), "%s: %s", op.id, got.Body)
}

// fits reports why a value is not what a schema says. It knows the part of JSON Schema
// that the document uses, and takes a property that is not described for an error.
func (d *document) fits(schema map[string]any, value any, at string) error {
	schema = d.resolve(schema)
	for key := range schema {
		if !slices.Contains([]string{"type", "properties", "required", "items", "enum", "format", "additionalProperties", "anyOf", "description", "maxLength", "minimum"}, key) {
			return fmt.Errorf("%s: the test does not know %s", at, key)
		}
	}
	if options, ok := schema["anyOf"].([]any); ok {
		var err error
		for _, option := range options {
			if err = d.fits(option.(map[string]any), value, at); err == nil {
				return nil
			}
		}
		return err
	}
	if values, ok := schema["enum"].([]any); ok && !slices.Contains(values, value) {
		return fmt.Errorf("%s is %v, which is not in the list", at, value)
	}
	switch schema["type"] {
	case nil:
		return nil
	case "null":
		if value != nil {
			return fmt.Errorf("%s is not null", at)
		}
	case "string":
		s, ok := value.(string)
		if !ok {
			return fmt.Errorf("%s is %T, not a string", at, value)
		}
		return fitsFormat(schema["format"], s, at)
	case "boolean":
		if _, ok := value.(bool); !ok {
			return fmt.Errorf("%s is %T, not a boolean", at, value)
		}
	case "integer", "number":
		n, ok := value.(float64)
		if !ok || schema["type"] == "integer" && n != float64(int64(n)) {
			return fmt.Errorf("%s is %v, not a number of that kind", at, value)
		}
	case "array":
		list, ok := value.([]any)
		if !ok {
			return fmt.Errorf("%s is %T, not an array", at, value)
		}
		for i, item := range list {
			if err := d.fits(schema["items"].(map[string]any), item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case "object":
		return d.fitsObject(schema, value, at)
	default:
		return fmt.Errorf("%s: the test does not know the type %v", at, schema["type"])
	}
	return nil
}

func (d *document) fitsObject(schema map[string]any, value any, at string) error {
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is %T, not an object", at, value)
	}
	properties, described := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			return fmt.Errorf("%s has no %s", at, name)
		}
	}
	more, _ := schema["additionalProperties"].(map[string]any)
	for name, field := range object {
		property, ok := properties[name].(map[string]any)
		switch {
		case ok:
		case more != nil:
			property = more
		case described:
			return fmt.Errorf("%s.%s is not described", at, name)
		default:
			continue
		}
		if err := d.fits(property, field, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func fitsFormat(format any, s, at string) error {
	var err error
	switch format {
	case nil, "uri-reference":
	case "uuid":
		_, err = uuid.Parse(s)
	case "date-time":
		_, err = time.Parse(time.RFC3339Nano, s)
	default:
		err = fmt.Errorf("the test does not know the format %v", format)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}
