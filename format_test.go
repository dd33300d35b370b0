package webhook

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exportedStructs has the exported struct types of the package by name. A new one with a
// field that may hold a payload or a credential must be added, and so be looked at.
var exportedStructs = map[string]any{
	"AdvanceReplayJobParams": AdvanceReplayJobParams{}, "ReplayCandidate": ReplayCandidate{},
	"ReplayJobRecord": ReplayJobRecord{}, "ReplayPage": ReplayPage{}, "ReplayWork": ReplayWork{}, "TakeReplayJobParams": TakeReplayJobParams{},
	"AllowRule": AllowRule{}, "Attempt": Attempt{}, "AttemptReport": AttemptReport{}, "AuthInput": AuthInput{},
	"BreakerConfig": BreakerConfig{}, "CancelDeliveriesParams": CancelDeliveriesParams{}, "Claimed": Claimed{},
	"ClaimParams": ClaimParams{}, "ClaimRequest": ClaimRequest{}, "Config": Config{}, "Delivery": Delivery{},
	"DispatcherConfig": DispatcherConfig{}, "EgressProxy": EgressProxy{}, "Endpoint": Endpoint{},
	"EndpointParams": EndpointParams{}, "EndpointRecord": EndpointRecord{},
	"EndpointTLS": EndpointTLS{}, "EndpointUpdate": EndpointUpdate{}, "EnqueueResult": EnqueueResult{}, "Event": Event{},
	"EventListing": EventListing{}, "EventPage": EventPage{}, "EventRecord": EventRecord{}, "EventStatus": EventStatus{}, "ExponentialRetry": ExponentialRetry{},
	"FanOutParams": FanOutParams{}, "FanOutResult": FanOutResult{}, "HealthRecord": HealthRecord{}, "HeartbeatParams": HeartbeatParams{},
	"InvalidError": InvalidError{}, "Key": Key{}, "Lease": Lease{}, "RequestCopy": RequestCopy{}, "ListDeliveriesParams": ListDeliveriesParams{}, "LogTestParams": LogTestParams{},
	"ListEndpointsParams": ListEndpointsParams{}, "LoadHealthParams": LoadHealthParams{}, "PortRange": PortRange{},
	"ReadyLane": ReadyLane{}, "ReadyParams": ReadyParams{}, "RecordParams": RecordParams{}, "RecordResult": RecordResult{}, "RecentAttempt": RecentAttempt{},
	"ReleaseOrderedParams": ReleaseOrderedParams{}, "ReleaseOrderedResult": ReleaseOrderedResult{},
	"RenewParams": RenewParams{}, "Result": Result{}, "RetryInput": RetryInput{}, "RetrySchedule": RetrySchedule{},
	"RotateOptions": RotateOptions{}, "Scope": Scope{}, "Secret": Secret{}, "SecretInfo": SecretInfo{},
	"SecretUnreadableError": SecretUnreadableError{}, "SignInput": SignInput{},
	"StandardWebhooksConfig": StandardWebhooksConfig{}, "TakeProbesParams": TakeProbesParams{},
	"TransportConfig": TransportConfig{},
	"ActivityRecord":  ActivityRecord{}, "HealthRow": HealthRow{}, "Notice": Notice{}, "NoticeRecord": NoticeRecord{},
	"SaveVitalsParams": SaveVitalsParams{}, "VitalsRecord": VitalsRecord{},
}

// Types that hold the machinery, not data: they are handed around as pointers.
var machines = map[string]bool{
	"Redaction": true,
	"Breaker":   true, "Dispatcher": true, "Endpoints": true, "Hooks": true, "Keyring": true, "Transport": true,
	"GitHubSigner": true, "ShopifySigner": true, "SlackSigner": true, "StripeSigner": true,
}

// documents are fields with what this package knows of an endpoint: numbers, times and
// words of its own.
var documents = map[string]bool{"Circuit": true, "Data": true, "Detail": true, "State": true, "Vitals": true}

func TestP06EveryExportedTypeIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, name := range structsToLookAt(t) {
		assert.True(t, machines[name] || exportedStructs[name] != nil, "%s is missing in exportedStructs", name)
	}
}

// suspect matches fields that may hold a payload or a credential.
var suspect = regexp.MustCompile(`(?m)^\s*(` +
	`\w*(URL|Location|Password|Token|Secrets?)\w* +\S+|` +
	`\w+ .*(\bbyte\b|RawMessage|Secret|Headers|Key\b).*|` +
	`(\w+ +)?[\[\]*]*(Endpoint(Params|Record|TLS|Update)?|Event(Record|Status)?|Attempt|Claimed|Result)` +
	`) *$`)

func structsToLookAt(t *testing.T) []string {
	t.Helper()
	var names []string
	files, err := fs.Glob(os.DirFS("."), "*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		positions := token.NewFileSet()
		parsed, err := parser.ParseFile(positions, file, source, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if _, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
				text := source[positions.Position(spec.Pos()).Offset:positions.Position(spec.End()).Offset]
				if suspect.Match(regexp.MustCompile(`//.*`).ReplaceAll(text, nil)) {
					names = append(names, spec.Name.Name)
				}
			}
			return false
		})
	}
	require.Subset(t, names, []string{"Endpoint", "EndpointParams", "Event", "EventRecord", "Attempt", "Result", "Claimed", "Key", "EgressProxy"})
	return names
}

// What the values below hold where a payload, a credential or a stranger's words may be.
const (
	sesame    = "open-sesame-7f3d"
	sesameURL = "https://ali:" + sesame + "@hooks.example/" + sesame + "?token=" + sesame + "#" + sesame
)

// fill puts sesame into whatever may hold something secret, found by its type and, for
// strings, its name; the rest gets harmless values.
func fill(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch x := v.Addr().Interface().(type) {
	case *Secret:
		*x = mustSecret(t, v1Secret)
		return
	case *Key:
		*x = NewKey("2026")
		copy(x.Bytes[:], sesame)
		return
	case *Headers:
		*x = Headers{"X-Token": sesame}
		return
	case *Authenticator:
		*x = BearerAuth(sesame)
		return
	case *SecretBox:
		key := NewKey("2026")
		copy(key.Bytes[:], sesame)
		*x = NewKeyring(key)
		return
	case *error:
		*x = errors.New("cause")
		return
	case *time.Time:
		*x = time.Unix(1_700_000_000, 0).UTC()
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(t, v.Field(i), f.Name)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Type().Elem().PkgPath() == "" || strings.HasPrefix(v.Type().Elem().PkgPath(), "github.com/outhook") || v.Type().Elem().PkgPath() == "encoding/json" {
			fill(t, v.Elem(), name)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if documents[name] {
				return
			}
			v.SetBytes([]byte(`"` + sesame + `"`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), name)
	case reflect.String:
		switch name {
		case "URL", "Location":
			v.SetString(sesameURL)
		default:
			v.SetString("plain")
		}
	}
}

func TestP06NoExportedTypePrintsWhatItShouldNot(t *testing.T) {
	t.Parallel()
	for name, zero := range exportedStructs {
		pointer := reflect.New(reflect.TypeOf(zero))
		fill(t, pointer.Elem(), name)
		value := pointer.Elem().Interface()
		secrets := [][]byte{[]byte(sesame), []byte(`"` + sesame), mustSecret(t, v1Secret).KeyBytes(), []byte(v1Secret[6:])}
		for _, v := range []any{value, pointer.Interface(), []any{value}, struct{ V any }{value}, map[string]any{"v": value}} {
			out := forms(t, v)
			// Encoders give the whole value on purpose; secrets proper are looked at below.
			delete(out, "json")
			delete(out, "xml")
			delete(out, "gob")
			if reflect.TypeOf(v) != reflect.TypeOf(value) && reflect.TypeOf(v) != pointer.Type() {
				delete(out, "slog json") // is encoding/json for what holds a value
			}
			for form, text := range out {
				for _, secret := range secrets {
					for _, spelling := range spellings(secret) {
						if strings.Contains(text, spelling) {
							t.Errorf("%s, as %T in %s, shows %.20q: %.300s", name, v, form, spelling, text)
						}
					}
				}
			}
		}
	}
}

func spellings(secret []byte) []string {
	return []string{
		string(secret), base64.StdEncoding.EncodeToString(secret)[:16], fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret),
		strings.Trim(fmt.Sprint(secret), "[]"), strings.Trim(fmt.Sprintf("%#v", secret), "[]byte{}"),
	}
}

func TestP06EncodersGetNoCredentialOfAnEndpoint(t *testing.T) {
	t.Parallel()
	e := Endpoint{EndpointParams: EndpointParams{
		Headers: Headers{"X-Token": sesame},
		Secret:  mustSecret(t, v1Secret),
		TLS:     EndpointTLS{CertificatePEM: []byte("cert"), KeyPEM: []byte(sesame)},
	}}
	update := EndpointUpdate{Headers: &e.Headers, TLS: &e.TLS}
	for _, v := range []any{e, e.EndpointParams, update, RotateOptions{Secret: e.Secret}, []any{e}} {
		encoded, err := json.Marshal(v)
		require.NoError(t, err)
		for _, form := range []string{sesame, "b3Blbi1zZXNhbWU", v1Secret[6:]} {
			assert.NotContains(t, string(encoded), form, "%T", v)
		}
	}
	encoded, err := json.Marshal(any(e))
	require.NoError(t, err)
	assert.Contains(t, string(encoded), `"Headers":{"X-Token":"[redacted]"}`)
}

func TestPrintedEndpointsTellThemApart(t *testing.T) {
	t.Parallel()
	e := Endpoint{
		State:          EndpointActive,
		EndpointParams: EndpointParams{Tenant: "acme", URL: sesameURL, Types: []string{"a", "b.*"}, Headers: Headers{"X-B": "1", "X-A": "2"}},
	}
	text := fmt.Sprintf("%+v", e)
	for _, want := range []string{"tenant=acme", "url=https://hooks.example ", "types=a,b.*", "headers=X-A,X-B", "state=active"} {
		assert.Contains(t, text, want)
	}
	assert.Equal(t, slog.KindGroup, Event{}.LogValue().Kind())
	assert.Contains(t, fmt.Sprint(Event{Payload: []byte(`{}`)}), "payload_bytes=2")
}
