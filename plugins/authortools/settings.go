package authortools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/kvrelay/engine/plugins/policyfile"
)

// Mistake is what is wrong with one setting of a policy.
type Mistake struct {
	Key string // dotted, "" for the settings as a whole
	Why string
}

// Error says it on one line.
func (m Mistake) Error() string {
	if m.Key == "" {
		return m.Why
	}
	return m.Key + ": " + m.Why
}

// maxSchema bounds what is read of a schema, bytes.
const maxSchema = 1 << 20

// FindSchema returns the JSON schema of a module's settings, and the file that it is from; nil
// where there is none. Beside NAME.wasm it is NAME.schema.json, or policy.schema.json if the
// policy.toml there is the module's, or what follows from that policy.toml.
func FindSchema(module string) (schema []byte, from string, err error) {
	dir, base := filepath.Split(module)
	stem := strings.TrimSuffix(base, ".wasm")
	from = filepath.Join(dir, stem+".schema.json")
	if schema, err = readSchema(from); !errors.Is(err, os.ErrNotExist) {
		return schema, from, err
	}
	about := filepath.Join(dir, "policy.toml")
	file, err := policyfile.Read(about)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && file.Name != stem:
		return nil, "", nil
	case err != nil:
		return nil, about, err
	}
	from = filepath.Join(dir, "policy.schema.json")
	if schema, err = readSchema(from); !errors.Is(err, os.ErrNotExist) {
		return schema, from, err
	}
	return Schema(file), about, nil
}

func readSchema(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSchema+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSchema {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxSchema)
	}
	return text, nil
}

// CheckSettings compares a policy's settings with the JSON schema of its module: what it finds
// names the keys. Nil settings are an empty object. The error is of the schema itself.
func CheckSettings(schema, settings []byte) ([]Mistake, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("the schema of the settings is no JSON: %w", err)
	}
	const name = "schema.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(name, document); err != nil {
		return nil, fmt.Errorf("the schema of the settings: %w", err)
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("the schema of the settings: %w", err)
	}
	if len(settings) == 0 {
		settings = []byte("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(settings))
	if err != nil {
		return []Mistake{{Why: "the settings are no JSON"}}, nil
	}
	var wrong *jsonschema.ValidationError
	if errors.As(compiled.Validate(value), &wrong) {
		return mistakes(wrong), nil
	}
	return nil, nil
}

// noLoader keeps a schema from reading files or the network.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema of settings refers to nothing but itself, not to %s", url)
}

// mistakes are the leaves of a validator's tree.
func mistakes(e *jsonschema.ValidationError) []Mistake {
	if len(e.Causes) > 0 {
		var all []Mistake
		for _, cause := range e.Causes {
			all = append(all, mistakes(cause)...)
		}
		return all
	}
	at := strings.Join(e.InstanceLocation, ".")
	extra, ok := e.ErrorKind.(*kind.AdditionalProperties)
	if !ok {
		return []Mistake{{at, e.ErrorKind.LocalizedString(message.NewPrinter(language.English))}}
	}
	var all []Mistake
	for _, name := range extra.Properties {
		key := strings.TrimPrefix(at+"."+name, ".")
		all = append(all, Mistake{key, "the policy has no such setting"})
	}
	return all
}
