"""Writes schemas.json: schemas of the kinds that applications ask for, most of them drawn from a
fixed seed. Run it in this folder; the file is committed."""
import json
import random

rnd = random.Random(5)
words = ["name", "age", "city", "email", "price", "tags", "id", "status", "note", "count", "when",
         "items", "kind", "zip code", "größe", "a\"b", "score", "owner", "level", "url"]
patterns = [r"^[A-Z]{2,4}-\d{1,4}$", r"^\d{3}-\d{4}$", r"[a-z]+(_[a-z]+)*", r"^(foo|bar|baz)?$",
            r"^#[0-9a-fA-F]{6}$", r"^\w{1,12}$", r"^[^\s]{1,8}$", r"^(\+\d{1,3} )?\d{4,10}$",
            r"^v\d+\.\d+(\.\d+)?$", r"^\"[a-z]\\{0,2}\"$", r"^(?i:yes|no)$", r"^.{3,9}$"]
formats = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "hostname", "uri"]


def text():
    s = {"type": "string"}
    kind = rnd.randrange(5)
    if kind == 0:
        s["pattern"] = rnd.choice(patterns)
    elif kind == 1:
        s["format"] = rnd.choice(formats)
    elif kind == 2:
        s["minLength"] = rnd.randrange(5)
        s["maxLength"] = s["minLength"] + rnd.randrange(12)
    elif kind == 3:
        s["maxLength"] = rnd.randrange(1, 20)
    return s


def number():
    s = {"type": rnd.choice(["integer", "number"])}
    low = rnd.choice([-1000, -10, -1.5, 0, 0.25, 1, 7, 99, 1e6])
    if rnd.random() < 0.7:
        s[rnd.choice(["minimum", "exclusiveMinimum"])] = low
    if rnd.random() < 0.7:
        s[rnd.choice(["maximum", "exclusiveMaximum"])] = low + rnd.choice([2, 3.5, 10, 12345])
    return s


def choice(depth):
    kind = rnd.randrange(3)
    if kind == 0:
        return {"enum": rnd.sample(["red", "green", 1, 2.5, None, True, "x\ny", {"a": [1]}], 3)}
    if kind == 1:
        return {"const": rnd.choice(["fixed", 42, False, [1, "two"]])}
    return {"anyOf": [{"type": "null"}, schema(depth - 1), {"type": "boolean"}]}


def array(depth):
    s = {"type": "array", "items": schema(depth - 1)}
    if rnd.random() < 0.3:
        s["prefixItems"] = [schema(0), {"type": "boolean"}]
        s["items"] = rnd.choice([False, schema(0)])
        return s
    if rnd.random() < 0.6:
        s["minItems"] = rnd.randrange(3)
        s["maxItems"] = s["minItems"] + rnd.randrange(4)
    return s


def obj(depth):
    names = rnd.sample(words, rnd.randrange(1, 5))
    s = {"type": "object", "properties": {n: schema(depth - 1) for n in names},
         "required": [n for n in names if rnd.random() < 0.6]}
    more = rnd.randrange(4)
    if more == 0:
        s["additionalProperties"] = False
    elif more == 1:
        s["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 9}
    return s


def schema(depth):
    if depth <= 0:
        return rnd.choice([text, number, lambda: {"type": "boolean"}, lambda: choice(0)])() \
            if rnd.random() < 0.9 else {"type": ["string", "null"], "maxLength": 6}
    return rnd.choice([obj, obj, array, choice, lambda d: text(), lambda d: number()])(depth)



tree = {"$ref": "#/$defs/node", "$defs": {"node": {
    "type": "object", "properties": {
        "value": {"type": "integer", "minimum": 0, "maximum": 99},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
    "required": ["value"], "additionalProperties": False}}}
linked = {"type": "object", "properties": {"head": {"type": "integer"},
          "tail": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
          "required": ["head", "tail"], "additionalProperties": False}
person = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Person",
          "type": "object", "description": "who", "properties": {
              "name": {"type": "string", "minLength": 1, "maxLength": 12},
              "born": {"type": "string", "format": "date"},
              "mail": {"type": "string", "format": "email"},
              "home": {"$ref": "#/$defs/address"}, "work": {"$ref": "#/$defs/address"}},
          "required": ["name", "home"], "$defs": {"address": {
              "type": "object", "properties": {
                  "street": {"type": "string", "maxLength": 16},
                  "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
                  "country": {"enum": ["DE", "FR", "NL"]}}, "required": ["zip", "country"],
              "additionalProperties": False}}}
merged = {"allOf": [{"$ref": "#/$defs/base"}, {
    "properties": {"extra": {"type": "number", "minimum": 0, "maximum": 1}},
    "required": ["extra"]}], "$defs": {"base": {
        "type": "object", "properties": {"id": {"type": "string", "format": "uuid"},
                                         "extra": {"maximum": 0.5}}, "required": ["id"]}}}
shape = {"oneOf": [
    {"type": "object", "properties": {"kind": {"const": "circle"},
     "radius": {"type": "number", "exclusiveMinimum": 0}}, "required": ["kind", "radius"]},
    {"type": "object", "properties": {"kind": {"const": "square"},
     "side": {"type": "number", "exclusiveMinimum": 0}}, "required": ["kind", "side"]}]}
siblings = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 4}},
            "anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "boolean"}},
                                            "required": ["b"]}]}
event = {"type": "object", "properties": {
    "title": {"type": "string"}, "when": {"type": "string", "format": "date-time"},
    "people": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5}},
    "required": ["title", "when", "people"], "additionalProperties": False}
free = [{}, True, {"type": "object"}, {"type": "array"}, {"type": "object", "required": ["x"]},
        {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}},
        {"type": ["integer", "null"]}, {"type": "integer"}, {"type": "number"}, {"type": "string"},
        {"enum": ["only"]}, {"minimum": 3}, {"properties": {"a": {"type": "null"}}}]
refused = [
    ({"type": "integer", "multipleOf": 3}, "multipleOf"),
    ({"not": {"type": "string"}}, "not"),
    ({"if": {"type": "string"}, "then": {"maxLength": 3}}, "if"),
    ({"type": "object", "patternProperties": {"^a": {}}}, "patternProperties"),
    ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "contains": {"type": "null"}}, "contains"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
    ({"type": "object", "unevaluatedProperties": False}, "unevaluatedProperties"),
    ({"type": "object", "minProperties": 2}, "minProperties"),
    ({"type": "string", "format": "regex"}, "format"),
    ({"type": "string", "pattern": "^(?=a)b"}, "pattern"),
    ({"$ref": "https://example.com/schema.json"}, "$ref"),
    ({"$ref": "#"}, "$ref"),
    ({"type": "object", "properties": {"a": {"type": "str"}}}, "type"),
]
everything = [tree, linked, person, merged, shape, siblings, event] + free
everything += [schema(3) for _ in range(200 - len(everything) - len(refused))]
out = [{"schema": s} for s in everything] + [{"schema": s, "refused": k} for s, k in refused]
with open("schemas.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(s, ensure_ascii=False) for s in out) + "\n]\n")
