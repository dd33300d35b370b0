package admin

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// The OpenAPI document is made of the routes and of the shapes that they read and
// write, so that it cannot tell of anything else.

// obj is a JSON object; its keys are written in their order.
type obj = map[string]any

// anyObject is the shape of an answer that is described elsewhere.
type anyObject struct{}

func getOpenAPI(v *visit) error { return v.writeJSON(http.StatusOK, v.handler.openAPI) }

// openAPIOf describes the routes.
func openAPIOf(routes []route, operators bool) (json.RawMessage, error) {
	d := &describer{schemas: obj{}, operators: operators}
	paths := obj{}
	for _, rt := range routes {
		if rt.op == nil {
			continue
		}
		item, ok := paths[rt.pattern].(obj)
		if !ok {
			item = obj{}
			paths[rt.pattern] = item
			if params := pathParams(rt.pattern); len(params) > 0 {
				item["parameters"] = params
			}
		}
		item[strings.ToLower(rt.method)] = d.operation(rt)
	}
	title := "Webhooks, for a tenant's own users"
	if operators {
		title = "Webhooks, for operators"
	}
	return json.Marshal(obj{
		"openapi": "3.1.0",
		"info": obj{
			"title": title, "version": "1",
			"description": "Who asks is settled by the host's own login, and so is whose data there is: what belongs to another tenant is " +
				"answered exactly like what does not exist. Times are RFC 3339 in UTC. A list ends with the page that has no next_cursor.",
		},
		"servers": []any{obj{"url": ".."}}, // the mount point, seen from this document
		"paths":   paths,
		"components": obj{
			"schemas": d.schemas,
			"responses": obj{"Problem": obj{
				"description": "Why it was refused (RFC 9457).",
				"content":     obj{"application/problem+json": obj{"schema": d.schema(reflect.TypeFor[problem]())}},
			}},
		},
	})
}

var pathParamPattern = regexp.MustCompile(`\{(\w+)\}`)

func pathParams(pattern string) []any {
	var params []any
	for _, m := range pathParamPattern.FindAllStringSubmatch(pattern, -1) {
		params = append(params, obj{"name": m[1], "in": "path", "required": true, "schema": obj{"type": "string", "format": "uuid"}})
	}
	return params
}

// describer gathers the schemas of the shapes that it meets.
type describer struct {
	schemas   obj
	operators bool
}

func (d *describer) operation(rt route) obj {
	op := rt.op
	success := obj{"description": http.StatusText(op.status)}
	headers := obj{}
	if op.etag {
		headers["ETag"] = obj{"description": "For If-Match.", "schema": obj{"type": "string"}}
	}
	if op.status == http.StatusCreated {
		headers["Location"] = obj{"description": "Where it is, relative to the request.", "schema": obj{"type": "string", "format": "uri-reference"}}
	}
	if len(headers) > 0 {
		success["headers"] = headers
	}
	switch {
	case op.media != "":
		success["content"] = obj{op.media: obj{}}
	case op.response != nil:
		success["content"] = obj{"application/json": obj{"schema": d.schema(reflect.TypeOf(op.response))}}
	}
	responses := obj{strconv.Itoa(op.status): success}
	if op.creates && op.status == http.StatusCreated {
		responses["200"] = success // the second answer to one Idempotency-Key
	}
	for _, status := range problemsOf(rt) {
		responses[strconv.Itoa(status)] = obj{"$ref": "#/components/responses/Problem"}
	}
	out := obj{"operationId": op.id, "tags": []any{op.tag}, "summary": op.summary, "responses": responses}
	if params := d.params(op); len(params) > 0 {
		out["parameters"] = params
	}
	if op.request != nil {
		out["requestBody"] = obj{
			"required": !op.optionalBody,
			"content":  obj{"application/json": obj{"schema": d.schema(reflect.TypeOf(op.request))}},
		}
	}
	return out
}

// problemsOf lists the statuses of an operation's refusals.
func problemsOf(rt route) []int {
	statuses := append([]int{400, 401, 403, 500, 503}, rt.op.problems...)
	if strings.Contains(rt.pattern, "{") {
		statuses = append(statuses, 404)
	}
	if rt.op.request != nil {
		statuses = append(statuses, 413, 415, 422)
	}
	if rt.limited {
		statuses = append(statuses, 429)
	}
	slices.Sort(statuses)
	return slices.Compact(statuses)
}

func (d *describer) params(op *operation) []any {
	var params []any
	for _, p := range op.params {
		if p.operators && !d.operators {
			continue
		}
		schema := obj{"type": "string", "maxLength": maxParameterBytes}
		switch p.kind {
		case textParam:
		case idParam:
			schema = obj{"type": "string", "format": "uuid"}
		case timeParam:
			schema = obj{"type": "string", "format": "date-time"}
		case numberParam:
			schema = obj{"type": "integer", "minimum": 1}
		case boolParam:
			schema = obj{"type": "boolean"}
		}
		if len(p.oneOf) > 0 {
			schema = obj{"type": "string", "enum": p.oneOf}
		}
		params = append(params, obj{"name": p.name, "in": "query", "description": p.doc, "schema": schema})
	}
	if op.creates {
		params = append(params, obj{
			"name": "Idempotency-Key", "in": "header", "schema": obj{"type": "string", "maxLength": maxKeyBytes},
			"description": "A text of your own. A second request with the same one makes nothing and answers with what the first made, without its secret.",
		})
	}
	if op.precondition {
		params = append(params, obj{
			"name": "If-Match", "in": "header", "schema": obj{"type": "string"},
			"description": "The ETag that the endpoint must still have; with another one the answer is 412.",
		})
	}
	return params
}

// enums are the values of the library's string types.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[webhook.DeliveryState](): deliveryStates,
	reflect.TypeFor[webhook.EndpointState](): {string(webhook.EndpointActive), string(webhook.EndpointPaused), string(webhook.EndpointDisabled)},
	reflect.TypeFor[webhook.Ordering]():      {string(webhook.OrderingPerResource), string(webhook.OrderingPerEndpoint)},
	reflect.TypeFor[webhook.RetryPreset](): {
		string(webhook.RetryPresetDefault), string(webhook.RetryPresetStandardWebhooks), string(webhook.RetryPresetExponential),
		string(webhook.RetryPresetShort), string(webhook.RetryPresetStrict), string(webhook.RetryPresetNone),
	},
	reflect.TypeFor[webhook.WaitReason](): {
		string(webhook.WaitPaused), string(webhook.WaitOrdering), string(webhook.WaitRetry), string(webhook.WaitCircuitOpen),
		string(webhook.WaitRateLimited), string(webhook.WaitRetryBudget), string(webhook.WaitSlowLane),
		string(webhook.WaitConcurrency), string(webhook.WaitDue),
	},
	reflect.TypeFor[webhook.HealthStatus](): {
		string(webhook.HealthUnknown), string(webhook.HealthHealthy), string(webhook.HealthUnsteady), string(webhook.HealthFailing),
	},
	reflect.TypeFor[webhook.CircuitState](): {string(webhook.CircuitClosed), string(webhook.CircuitOpen), string(webhook.CircuitHalfOpen)},
	reflect.TypeFor[webhook.ReplayJobState](): {
		string(webhook.ReplayRunning), string(webhook.ReplayDone), string(webhook.ReplayCancelled), string(webhook.ReplayFailed),
	},
	reflect.TypeFor[webhook.ErrorClass](): {
		string(webhook.ClassDNS), string(webhook.ClassConnect), string(webhook.ClassTLS), string(webhook.ClassTimeout),
		string(webhook.ClassReset), string(webhook.ClassBlocked), string(webhook.ClassProtocol), string(webhook.ClassBody),
		string(webhook.ClassHTTP4xx), string(webhook.ClassHTTP5xx), string(webhook.ClassRedirect), string(webhook.ClassCancelled),
		string(webhook.ClassProxy), string(webhook.ClassInternal),
	},
}

// schema describes a type; that of a struct goes into the components.
func (d *describer) schema(t reflect.Type) obj {
	switch t {
	case reflect.TypeFor[time.Time]():
		return obj{"type": "string", "format": "date-time"}
	case reflect.TypeFor[uuid.UUID]():
		return obj{"type": "string", "format": "uuid"}
	case reflect.TypeFor[json.RawMessage]():
		return obj{}
	case reflect.TypeFor[anyObject]():
		return obj{"type": "object"}
	}
	if values, ok := enums[t]; ok {
		return obj{"type": "string", "enum": values}
	}
	switch t.Kind() {
	case reflect.String:
		return obj{"type": "string"}
	case reflect.Bool:
		return obj{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return obj{"type": "integer"}
	case reflect.Float64:
		return obj{"type": "number"}
	case reflect.Slice:
		return obj{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return obj{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Pointer:
		return d.schema(t.Elem())
	}
	// A field that may be left out, or null.
	if strings.HasPrefix(t.Name(), "field[") {
		value, _ := t.FieldByName("Value")
		return obj{"anyOf": []any{d.schema(value.Type), obj{"type": "null"}}}
	}
	name := schemaName(t)
	if _, ok := d.schemas[name]; !ok {
		schema := obj{"type": "object"}
		d.schemas[name] = schema // before its fields, which may lead back here
		properties, required := obj{}, []string{}
		d.fields(t, properties, &required)
		schema["properties"] = properties
		if len(required) > 0 {
			schema["required"] = required
		}
		if strings.HasSuffix(name, "Input") || strings.HasSuffix(name, "Request") {
			schema["additionalProperties"] = false
		}
	}
	return obj{"$ref": "#/components/schemas/" + name}
}

// fields describes the fields of a struct, with those of what it embeds.
func (d *describer) fields(t reflect.Type, properties obj, required *[]string) {
	input := strings.HasSuffix(t.Name(), "Input") || strings.HasSuffix(t.Name(), "Request")
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			d.fields(f.Type, properties, required)
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" || name == "-" {
			continue
		}
		schema := d.schema(f.Type)
		if text := docOf(t, f, name); text != "" {
			schema["description"] = text
		}
		properties[name] = schema
		if f.Tag.Get("need") != "" || !input && options == "" {
			*required = append(*required, name)
		}
	}
}

func docOf(t reflect.Type, f reflect.StructField, name string) string {
	if text := f.Tag.Get("doc"); text != "" {
		return text
	}
	return libraryDocs[t.Name()+"."+name]
}

// schemaName is a type's name in the document: "Endpoint" of endpointShape,
// "EndpointList" of listShape[endpointShape].
func schemaName(t reflect.Type) string {
	name := t.Name()
	if element, ok := strings.CutPrefix(name, "listShape["); ok {
		element = strings.TrimSuffix(element, "]")
		return title(element[strings.LastIndexByte(element, '.')+1:]) + "List"
	}
	return title(name)
}

func title(name string) string {
	name = strings.TrimSuffix(name, "Shape")
	return strings.ToUpper(name[:1]) + name[1:]
}

// libraryDocs describe the fields of shapes that are the library's own.
var libraryDocs = map[string]string{
	"ReplayJobRequest.endpoint_id":   "The endpoint that everything goes to. Required.",
	"ReplayJobRequest.events_from":   "Only events enqueued from then on.",
	"ReplayJobRequest.events_to":     "Only events enqueued before.",
	"ReplayJobRequest.finished_from": "Only what finished from then on.",
	"ReplayJobRequest.finished_to":   "Only what finished before.",
	"ReplayJobRequest.per_second":    "How many runs begin in a second at most. 0: no limit of its own.",
	"ReplayJobRequest.rematch":       "Also events of which the endpoint has no delivery. Needs events_from.",
	"ReplayJobRequest.states":        "The states in which the latest run is; as a rule dead, cancelled and shed.",
	"ReplayJobRequest.types":         "Patterns of event types. None means all.",
	"ReplayJob.reason":               "Why it failed.",
	"ReplayJob.matched":              "What the request covered when the job was made.",
	"ReplayJob.handled":              "How much of that the job has got to.",
	"ReplayJob.created":              "The runs begun. What is handled and has none was being sent already, or its event is gone.",
	"ReplayEstimate.matched":         "The deliveries that the job would make.",
	"ReplayEstimate.rematched":       "Those of them that are there because the endpoint's patterns match now.",
}
