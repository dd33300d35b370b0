package verify

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// receiverCase is one request for a snippet of docs/receivers.md. Accepted ones name the
// message id in want.
type receiverCase struct {
	name      string
	secrets   string // separated by spaces
	id        string
	timestamp string
	signature string
	body      []byte
	now       int64
	want      string
}

func receiverCases() []receiverCase {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	vector := receiverCase{
		name: "V1", secrets: v1Secret, id: v1ID, timestamp: strconv.Itoa(v1Time), signature: v1Sig,
		body: []byte(v1Body), now: v1Time, want: v1ID,
	}
	with := func(name string, change func(*receiverCase)) receiverCase {
		c := vector
		c.name = name
		change(&c)
		return c
	}
	signed := func(name string, body []byte, signature string) receiverCase {
		return with(name, func(c *receiverCase) { c.body, c.signature = body, signature })
	}
	refused := func(name string, change func(*receiverCase)) receiverCase {
		return with(name, func(c *receiverCase) { c.want = ""; change(c) })
	}
	return []receiverCase{
		vector,
		signed("V4", bytes.Repeat([]byte("a"), 262143), "v1,NTItnqyWMoFhk2Bbe5V/BMdcFRWgcSQaTgqLHX7FC7c="),
		signed("V6", nil, "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A="),
		signed("V7", []byte("{\"name\":\"Zoë ☃\",\"n\":1}\n"), "v1,/+1m5vC9T9GTfQCTm9gSUeYU8fWRGajSwpBuhgC2gg8="),
		signed("V8", all, "v1,sEcZ042G8Crqgxbybb3y0eDxQR3TcfYsk11I1XULhSI="),
		with("V9", func(c *receiverCase) { c.secrets, c.signature = v9Secret, v9Sig }),
		with("V10 old key", func(c *receiverCase) { c.signature = v9Sig + " " + v1Sig }),
		with("V10 new key", func(c *receiverCase) { c.secrets, c.signature = v9Secret, v9Sig+" "+v1Sig }),
		with("two secrets", func(c *receiverCase) { c.secrets = v9Secret + " " + v1Secret }),
		with("secret without prefix", func(c *receiverCase) { c.secrets = strings.TrimPrefix(v1Secret, "whsec_") }),
		with("beside other versions", func(c *receiverCase) { c.signature = "v2,abc " + v5Sig + " v1 v1, " + v1Sig }),
		with("just in time", func(c *receiverCase) { c.now += 300 }),
		with("just not too new", func(c *receiverCase) { c.now -= 300 }),

		refused("too old", func(c *receiverCase) { c.now += 301 }),
		refused("too new", func(c *receiverCase) { c.now -= 301 }),
		refused("no id", func(c *receiverCase) { c.id = "" }),
		refused("no timestamp", func(c *receiverCase) { c.timestamp = "" }),
		refused("no signature", func(c *receiverCase) { c.signature = "" }),
		refused("timestamp in words", func(c *receiverCase) { c.timestamp = "soon" }),
		refused("timestamp with a line break", func(c *receiverCase) { c.timestamp += "\n" }),
		refused("another timestamp", func(c *receiverCase) { c.timestamp = strconv.Itoa(v1Time + 1) }),
		refused("another id", func(c *receiverCase) { c.id = "msg_other" }),
		refused("changed body", func(c *receiverCase) { c.body = []byte(`{"test":2432232314}`) }),
		refused("another secret", func(c *receiverCase) { c.secrets = v9Secret }),
		refused("v2 only", func(c *receiverCase) { c.signature = "v2" + v1Sig[2:] }),
		refused("version alone", func(c *receiverCase) { c.signature = "v1," }),
		refused("first bytes", func(c *receiverCase) { c.signature = v1Sig[:7] }),
		refused("not base64", func(c *receiverCase) { c.signature = "v1,@@@" }),
		refused("not ASCII", func(c *receiverCase) { c.signature = "v1,é " + v9Sig }),
		// With an empty key anybody could sign.
		refused("empty secret", func(c *receiverCase) { c.secrets, c.signature = "whsec_", "v1,"+emptyKeySignature }),
		refused("no secret", func(c *receiverCase) { c.secrets = "" }),
	}
}

// emptyKeySignature is V1's content signed with a key of no bytes.
const emptyKeySignature = "woH/1mJtZGSMCmpFTxRYbStS24eLLD/oXIYr4PYyZ7g="

// snippet returns the code block of docs/receivers.md that follows a language's mark.
func snippet(t *testing.T, language string) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "docs", "receivers.md"))
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)<!-- snippet: " + language + " -->\n```[a-z]+\n(.*?)```\n").FindSubmatch(doc)
	require.NotNil(t, block, "no snippet for %s", language)
	return string(block[1])
}

// harnesses wrap a snippet in a program that reads a case per line, its fields in base64
// and separated by tabs, and prints "ok" and the id, or "no".
var harnesses = []struct {
	language string
	commands []string // the first that exists runs the file
	file     string
	code     string
}{
	{"node", []string{"node"}, "main.js", `
const fields = (line) => line.split("\t").map((f) => Buffer.from(f, "base64"));
for (const line of require("node:fs").readFileSync(0, "utf8").split("\n")) {
  if (!line) continue;
  const [secrets, id, timestamp, signature, body, now] = fields(line);
  const headers = { "webhook-id": String(id), "webhook-timestamp": String(timestamp), "webhook-signature": String(signature) };
  try {
    const list = String(secrets) === "" ? [] : String(secrets).split(" ");
    console.log("ok " + verifyWebhook(list, headers, body, Number(String(now))));
  } catch { console.log("no"); }
}
`},
	{"python", []string{"python3", "python"}, "main.py", `
import sys

for line in sys.stdin:
    secrets, mid, ts, sig, body, now = [base64.b64decode(f) for f in line.rstrip("\n").split("\t")]
    headers = {"webhook-id": mid.decode(), "webhook-timestamp": ts.decode(), "webhook-signature": sig.decode()}
    try:
        print("ok", verify_webhook(secrets.decode().split(), headers, body, int(now)))
    except ValueError:
        print("no")
`},
	{"ruby", []string{"ruby"}, "main.rb", `
STDIN.each_line(chomp: true) do |line|
  secrets, id, ts, sig, body, now = line.split("\t", -1).map { |f| f.unpack1("m0") }
  headers = { "webhook-id" => id, "webhook-timestamp" => ts, "webhook-signature" => sig }
  puts(begin; "ok " + verify_webhook(secrets.split(" "), headers, body, now: now.to_i); rescue ArgumentError; "no"; end)
end
`},
	{"php", []string{"php"}, "main.php", `
while (($line = fgets(STDIN)) !== false) {
    [$secrets, $id, $ts, $sig, $body, $now] = array_map('base64_decode', explode("\t", rtrim($line, "\n")));
    $headers = ['webhook-id' => $id, 'webhook-timestamp' => $ts, 'webhook-signature' => $sig];
    try {
        $list = $secrets === '' ? [] : explode(' ', $secrets);
        echo 'ok ' . verify_webhook($list, $headers, $body, (int) $now) . "\n";
    } catch (InvalidArgumentException) {
        echo "no\n";
    }
}
`},
	{"java", []string{"java"}, "Main.java", `
class Main {
  public static void main(String[] args) throws Exception {
    var in = new java.io.BufferedReader(new java.io.InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      byte[][] f = java.util.Arrays.stream(line.split("\t", -1)).map(Base64.getDecoder()::decode).toArray(byte[][]::new);
      String secrets = new String(f[0], StandardCharsets.UTF_8);
      Map<String, String> headers = Map.of("webhook-id", new String(f[1], StandardCharsets.UTF_8),
          "webhook-timestamp", new String(f[2], StandardCharsets.UTF_8), "webhook-signature", new String(f[3], StandardCharsets.UTF_8));
      try {
        List<String> list = secrets.isEmpty() ? List.of() : List.of(secrets.split(" "));
        System.out.println("ok " + WebhookVerifier.verify(list, headers, f[4], Long.parseLong(new String(f[5]))));
      } catch (IllegalArgumentException e) {
        System.out.println("no");
      }
    }
  }
}
`},
}

func TestTheSnippetsForReceiversVerifyTheVectors(t *testing.T) {
	t.Parallel()
	for _, harness := range harnesses {
		t.Run(harness.language, func(t *testing.T) {
			t.Parallel()
			code := snippet(t, harness.language) + harness.code
			if harness.language == "java" { // which launches the first class of a file
				code = strings.Replace(snippet(t, "java"), "final class", harness.code+"\nfinal class", 1)
			}
			command := ""
			for _, name := range harness.commands {
				if path, err := exec.LookPath(name); err == nil {
					command = path
					break
				}
			}
			if command == "" {
				t.Logf("%s is not on this machine: its snippet was found but not run", harness.language)
				return
			}
			file := filepath.Join(t.TempDir(), harness.file)
			require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
			answers := strings.Split(strings.TrimSpace(run(t, command, file)), "\n")

			cases := receiverCases()
			require.Len(t, answers, len(cases), "%q", answers)
			for i, c := range cases {
				want := "no"
				if c.want != "" {
					want = "ok " + c.want
				}
				assert.Equal(t, want, answers[i], c.name)
			}
		})
	}
}

func run(t *testing.T, command, file string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var in, stderr bytes.Buffer
	for _, c := range receiverCases() {
		fields := [][]byte{
			[]byte(c.secrets), []byte(c.id), []byte(c.timestamp), []byte(c.signature), c.body, []byte(strconv.FormatInt(c.now, 10)),
		}
		for i, field := range fields {
			if i > 0 {
				in.WriteByte('\t')
			}
			in.WriteString(base64.StdEncoding.EncodeToString(field))
		}
		in.WriteByte('\n')
	}
	cmd := exec.CommandContext(ctx, command, file)
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", stderr.String())
	return string(out)
}

// The cases must be right before they judge the snippets.
func TestTheVerifierAgreesWithTheCasesForReceivers(t *testing.T) {
	t.Parallel()
	for _, c := range receiverCases() {
		h := v1Headers(c.signature)
		h.Set("webhook-id", c.id)
		h.Set("webhook-timestamp", c.timestamp)
		v, err := New(Config{Secrets: strings.Fields(c.secrets), Now: at(c.now)})
		if err == nil {
			_, err = v.Payload(h, c.body)
		}
		assert.Equal(t, c.want != "", err == nil, "%s: %v", c.name, err)
	}
}

// The Go snippet is a program: it is compiled as a user's would be and asked over HTTP.
func TestTheGoSnippetForReceiversWorks(t *testing.T) {
	t.Parallel()
	command, err := exec.LookPath("go")
	if err != nil {
		t.Log("go is not on this machine: its snippet was found but not run")
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(snippet(t, "go")), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main_test.go"), []byte(fmt.Sprintf(`package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/outhook/webhook"
)

func TestReceiver(t *testing.T) {
	secret, err := webhook.ParseSecret(%q)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int{"{}": http.StatusNoContent, "forged": http.StatusUnauthorized} {
		r := httptest.NewRequest("POST", "/webhooks", strings.NewReader(body))
		in := webhook.SignInput{ID: "msg_1", Time: time.Now(), Body: []byte("{}"), Secrets: []webhook.Secret{secret}}
		if err := webhook.StandardWebhooks().Sign(t.Context(), r.Header, in); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		receiver(%q, secret.Reveal()).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%%s: %%d %%s", body, w.Code, w.Body)
		}
	}
}
`, v1Secret, v9Secret)), 0o600))
	// Files on the command line belong to the module of the directory that go runs in.
	cmd := exec.CommandContext(t.Context(), command, "test", filepath.Join(dir, "main.go"), filepath.Join(dir, "main_test.go"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
