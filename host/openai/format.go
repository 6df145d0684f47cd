package openai

import "encoding/json"

// Kinds of Format.
const (
	FormatObject = "json_object"
	FormatSchema = "json_schema"
	// FormatCalls is between a router and its instances; clients may not send it.
	FormatCalls = "tool_calls"
)

// Format is a response_format that restricts the output.
type Format struct {
	Kind string
	// Raw is the field's value as it was sent.
	Raw json.RawMessage
}

// responseFormat reads response_format; text asks for nothing.
func (o *Options) responseFormat(v value, l Limits) *Error {
	members, err := v.members()
	if err != nil {
		return err
	}
	kind := member{}
	var schema *member
	for _, m := range members {
		switch m.name {
		case "type":
			kind = m
		case "json_schema":
			schema = &m
		}
	}
	if kind.raw == "" {
		return missing(v.path + ".type")
	}
	f := &Format{Raw: json.RawMessage(v.raw)}
	if err := kind.text(&f.Kind, MaxUser); err != nil {
		return err
	}
	switch f.Kind {
	case "text":
		return nil
	case FormatObject:
	case FormatSchema:
		if schema == nil {
			return missing(v.path + ".json_schema")
		}
		if err := schema.jsonSchema(); err != nil {
			return err
		}
	default:
		if f.Kind != FormatCalls || !l.internal {
			return kind.invalid("is %.40q; it must be text, json_object or json_schema", f.Kind)
		}
	}
	o.Format = f
	return nil
}

// jsonSchema checks the object around a schema; the schema itself is compiled elsewhere.
func (v value) jsonSchema() *Error {
	members, err := v.members()
	if err != nil {
		return err
	}
	has := false
	for _, m := range members {
		var text string
		var strict bool
		switch {
		case m.null():
		case m.name == "name", m.name == "description":
			err = m.text(&text, MaxText)
		case m.name == "strict":
			err = m.boolean(&strict) // It is always kept to.
		case m.name == "schema":
			has = true
			if m.raw[0] != '{' {
				err = m.wrong("an object")
			}
		}
		if err != nil {
			return err
		}
	}
	if !has {
		return missing(v.path + ".schema")
	}
	return nil
}
