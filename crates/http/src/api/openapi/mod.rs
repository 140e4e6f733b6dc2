//! Makes `openapi.json`, the `OpenAPI` 3.1 document that the server returns: routes from [`routes`], arguments and
//! answers from the types' sources ([`types`]), examples from [`samples`].
//!
//! The test fails when the file differs, and when a field has no description.
//! `STENTOR_UPDATE=1 cargo test -p stentor-http openapi` rewrites it.

mod routes;
pub(super) mod samples;
mod text;
mod types;
mod words;

use serde_json::{Map, Value, json};
use stentor_control::selection::REASON_BYTES_MAX;
use stentor_control::view::{ROWS_MAX, Subject};

use self::routes::{Choice, Fields, PREFIX, ROUTES, Route, RouteInput};
use self::samples::all;
use self::types::{Field, MISSING, Types};
use crate::generated::{GeneratedFile, check};

/// The whole document.
pub(super) fn document() -> Value {
    Document { types: Types::read() }.document()
}

#[test]
fn openapi_is_up_to_date() {
    let document = Document { types: Types::read() };
    let text = text::written(&document.document());
    check(&GeneratedFile { path: "src/api/openapi.json", filter: "openapi" }, |_| text.clone());
    let undescribed: Vec<&str> = text.lines().filter(|line| line.contains(MISSING)).collect();
    assert!(undescribed.is_empty(), "fields without a doc comment or an entry in WORDS: {undescribed:#?}");
    assert_eq!(document.types.unused(), [""; 0], "WORDS that no field needs");
}

struct Document {
    types: Types,
}

impl Document {
    fn document(&self) -> Value {
        let mut paths = Map::new();
        for route in ROUTES {
            let item = paths.entry(format!("{PREFIX}{}", route.path)).or_insert_with(|| json!({}));
            item[route.method] = self.operation(route);
        }
        let schema = |sample: samples::Sample| (sample.name.to_owned(), self.types.object(sample.kind));
        let schemas: Map<String, Value> = all().into_iter().map(schema).collect();
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Stentor",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Operator actions and injection of mail. Times are milliseconds since the Unix epoch. \
                 Fields may be added within a version. See docs/operate/http-api.md.",
                "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "paths": paths,
            "components": {
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "Create one with \
                 `stentor http-token NAME`."}},
                "schemas": schemas,
                "responses": {"Error": {
                    "description": "A refusal.",
                    "content": {"application/json": {"schema": reference("Error"), "example": example("Error")}},
                }},
            },
        })
    }

    fn operation(&self, route: &Route) -> Value {
        let in_path: Vec<&str> = route.path.split(['{', '}']).skip(1).step_by(2).collect();
        let path_parameter =
            |name: &&str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
        let mut parameters: Vec<Value> = in_path.iter().map(path_parameter).collect();
        let mut operation = json!({"summary": route.summary, "operationId": operation_id(route)});
        match &route.takes {
            RouteInput::Nothing => {}
            RouteInput::Query(fields) => parameters.extend(self.query(fields, &in_path)),
            RouteInput::View(command, others) => {
                parameters.extend(self.view(*command));
                parameters.extend(self.query(others, &in_path));
            }
            RouteInput::Body(fields) => {
                let schema = self.body(*fields, &in_path);
                operation["requestBody"] = json!({"content": {"application/json": {"schema": schema}}});
            }
            RouteInput::Csv(fields) => {
                parameters.extend(self.query(fields, &in_path));
                let content = json!({"text/csv": {"schema": {"type": "string"}}});
                operation["requestBody"] = json!({"required": true, "content": content});
            }
            RouteInput::Mail => {
                parameters.extend(self.mail_parameters());
                operation["requestBody"] = self.mail_body();
            }
        }
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        operation["responses"] = responses(route);
        // A token is optional for reading, unless that needs a login.
        let security = if route.method == "post" { json!([{"token": []}]) } else { json!([{}, {"token": []}]) };
        operation["security"] = security;
        operation
    }

    /// The chosen fields, without those in the path.
    fn chosen(&self, fields: Fields, in_path: &[&str]) -> Vec<&Field> {
        let is_chosen = |field: &&Field| match fields.choice {
            Choice::Except(names) => !names.contains(&&*field.name),
            Choice::Only(names) => names.contains(&&*field.name),
        };
        let all = self.types.fields(fields.of).into_iter().filter(is_chosen);
        all.filter(|field| !in_path.contains(&&*field.name)).collect()
    }

    fn parameter(&self, field: &Field, name: &str, schema: &Value) -> Value {
        json!({"name": name, "in": "query", "description": self.types.description(field), "schema": schema})
    }

    fn query(&self, fields: &[Fields], in_path: &[&str]) -> Vec<Value> {
        let chosen = fields.iter().flat_map(|fields| self.chosen(*fields, in_path));
        let parameter = |field: &Field| {
            let schema = self.types.schema(&field.kind, false);
            // A query has one value of each name.
            let one = if schema.get("anyOf").is_some() { json!({"type": "string"}) } else { schema };
            self.parameter(field, &field.name, &one)
        };
        chosen.map(parameter).collect()
    }

    fn body(&self, fields: Fields, in_path: &[&str]) -> Value {
        let (mut properties, mut needed) = (Map::new(), Vec::new());
        for field in self.chosen(fields, in_path) {
            let mut property = self.types.schema(&field.kind, false);
            property["description"] = self.types.description(field).into();
            if field.name == "reason" {
                property["maxLength"] = REASON_BYTES_MAX.into();
            }
            properties.insert(field.name.clone(), property);
            needed.extend(field.is_needed.then_some(&field.name));
        }
        let mut body = json!({"type": "object", "additionalProperties": false, "properties": properties});
        if !needed.is_empty() {
            body["required"] = json!(needed);
        }
        body
    }

    /// A command's rows, orders and limits; its requests are checked against the same values.
    fn view(&self, command: Subject) -> Vec<Value> {
        let with_default = |mut parameter: Value, default: &str| {
            let meaning = parameter["description"].as_str().unwrap_or_default();
            parameter["description"] = format!("{meaning} Default: {default}.").into();
            parameter
        };
        let mut parameters = Vec::new();
        for field in self.types.fields("View") {
            let words = |values: Value| self.parameter(field, &field.name, &json!({"type": "string", "enum": values}));
            parameters.extend(match field.name.as_str() {
                "by" if command.rows().is_empty() => None,
                "by" => {
                    let only = json!(command.rows().first().filter(|_| command.rows().len() == 1));
                    Some(with_default(
                        words(json!(command.rows())),
                        only.as_str().unwrap_or("all that the answer contains"),
                    ))
                }
                "site" if !command.takes_site() => None,
                "sort" if command.all_orders().is_empty() => None,
                "sort" => {
                    let first = json!(command.default_sort(None));
                    Some(with_default(words(json!(command.all_orders())), first.as_str().unwrap_or("newest first")))
                }
                "rows_max" => {
                    let (least, most) = command.rows_range();
                    let mut number = json!({"type": "integer", "minimum": least, "default": command.default_rows()});
                    if most == ROWS_MAX {
                        number["maximum"] = most.into();
                    }
                    Some(self.parameter(field, &field.name, &number))
                }
                _ => Some(self.parameter(field, &field.name, &self.types.schema(&field.kind, false))),
            });
        }
        parameters
    }

    /// Parameters for a message/rfc822 body.
    fn mail_parameters(&self) -> Vec<Value> {
        let mut parameters = Vec::new();
        for field in self.types.fields("Order").into_iter().filter(|field| !field.name.starts_with("message")) {
            let name = if field.name == "recipients" { "recipient" } else { &field.name };
            // A query has the text of the field.
            let schema = match name {
                "copies" => json!({"type": "string"}),
                _ => self.types.schema(&field.kind, false),
            };
            let mut parameter = self.parameter(field, name, &schema);
            let meaning = self.types.description(field);
            parameter["description"] = format!("{meaning} For a message/rfc822 body.").into();
            parameters.push(parameter);
        }
        let key_bytes_max = super::idempotency::KEY_BYTES_MAX;
        parameters.push(json!({"name": "Idempotency-Key", "in": "header",
            "schema": {"type": "string", "minLength": 1, "maxLength": key_bytes_max},
            "description": "A repeated request with the same key gets the answer of the first, for a day or until a \
             restart."}));
        parameters.push(json!({"name": "traceparent", "in": "header", "schema": {"type": "string"},
            "description": "W3C Trace Context: the message's spans join this trace."}));
        parameters
    }

    fn mail_body(&self) -> Value {
        let example = json!({"sender": "me@example.org", "recipients": ["ann@example.net"],
            "message": "Subject: Hello\n\nHello.\n"});
        let schema = self.body(Fields { of: "Order", choice: Choice::Except(&[]) }, &[]);
        json!({"required": true, "content": {
            "message/rfc822": {"schema": {"type": "string"}},
            "application/json": {"schema": schema, "example": example},
        }})
    }
}

fn example(name: &str) -> Value {
    all().into_iter().find(|sample| sample.name == name).map_or(Value::Null, |sample| sample.full)
}

fn responses(route: &Route) -> Value {
    let ok = if matches!(route.takes, RouteInput::Mail) { "201" } else { "200" };
    let is_stream = route.path.ends_with("/export");
    let content = match route.gives {
        "" => json!({"schema": {"type": "object"}}),
        "text/csv" => json!({"schema": {"type": "string"}}),
        // The schema describes one line.
        name if is_stream => json!({"schema": reference(name)}),
        name => json!({"schema": reference(name), "example": example(name)}),
    };
    let kind = match route.gives {
        "text/csv" => "text/csv",
        _ if is_stream => "application/x-ndjson",
        _ => "application/json",
    };
    let refused = json!({"$ref": "#/components/responses/Error"});
    let mut responses = json!({"default": refused, ok: {"description": route.summary, "content": {kind: content}}});
    if route.method == "post" {
        responses["401"] = refused.clone();
        responses["503"] = refused;
    }
    responses
}

fn operation_id(route: &Route) -> String {
    let words = route.path[1..].split(['/', '.']).map(|word| word.trim_matches(['{', '}']));
    format!("{}_{}", route.method, words.collect::<Vec<_>>().join("_"))
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}
