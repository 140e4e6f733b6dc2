use std::collections::BTreeSet;

use clap::ValueEnum;
use serde_json::json;
use stentor_control::view::ROWS_MAX;
use stentor_control::{RowKind, Sort, View};

use super::*;

#[test]
fn every_route_is_documented_and_nothing_else_is() {
    let document = openapi::document();
    let paths = document["paths"].as_object().unwrap();
    let documented: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, item)| item.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone())))
        .collect();
    let served: BTreeSet<(String, String)> =
        routes().into_iter().map(|(method, path, _)| (method.to_owned(), path.to_owned())).collect();
    assert_eq!(documented, served);
    let ids: BTreeSet<&str> = paths
        .values()
        .flat_map(|item| item.as_object().unwrap().values().map(|operation| operation["operationId"].as_str().unwrap()))
        .collect();
    assert_eq!(ids.len(), served.len());
    // Building it panics if two routes overlap.
    let _ = router();
}

#[test]
fn every_documented_argument_is_taken() {
    let document = openapi::document();
    for (path, verb) in VERBS {
        let schema = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let value: Value = match property["type"].as_str() {
                Some("integer") => 1.into(),
                Some("boolean") => true.into(),
                _ if name == "entries" => json!([{"subject": "a@x.example", "scope": "everything"}]),
                _ if name == "id" => "00000000002D".into(),
                _ if name == "as_of" => "7.1".into(),
                _ if name == "set" => json!({"verp": "plain"}),
                _ => "x".into(),
            };
            let mut fields = Map::from_iter([(name.clone(), value)]);
            if verb == "queue_only"
                && !matches!(name.as_str(), "all" | "class" | "list" | "domain" | "sender" | "client" | "source")
            {
                fields.insert("all".to_owned(), true.into());
            } else if matches!(verb, "suppress" | "unsuppress") {
                let entries = json!([{"subject": "a@x.example", "scope": "everything"}]);
                fields.entry("entries").or_insert(entries);
            } else if verb == "list_create" {
                for name in ["name", "address", "owner"] {
                    fields.entry(name).or_insert("x".into());
                }
            } else if name == "class" {
                fields.insert("class".to_owned(), "bulk".into());
            } else if verb == "quarantine_copy" {
                fields.entry("id").or_insert("0CX8M4H00000".into());
                fields.entry("to").or_insert("me@example.org".into());
            } else if matches!(verb, "queue_run" | "flush") {
                // These arguments exclude others.
            } else if name == "subscriber"
                || name == "reason" && fields.len() == 1 && matches!(verb, "suspend" | "resume")
            {
                fields.insert("list".to_owned(), "news".into());
            } else if matches!(name.as_str(), "for_s" | "end") || name == "dry_run" && verb == "suspend" {
                fields.insert("sender".to_owned(), "@example.net".into());
            } else if matches!(name.as_str(), "reason" | "dry_run" | "as_of") {
                fields.insert("all".to_owned(), true.into());
            }
            if let Err(error) = request(verb, fields, None) {
                panic!("{verb} {name}: {error}");
            }
        }
    }
}

#[test]
fn each_field_of_a_view_is_documented_or_refused() {
    let routes = [
        ("/api/v1/queue", "queue"),
        ("/api/v1/queue/ages", "ages"),
        ("/api/v1/queue/stuck", "queue_stuck"),
        ("/api/v1/hosts", "hosts"),
        ("/api/v1/posts", "report"),
    ];
    let document = openapi::document();
    let words = |values: &[Value]| values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>();
    let all = |name: &str| match name {
        "by" => RowKind::value_variants().iter().map(|by| json!(by)).collect(),
        "sort" => Sort::value_variants().iter().map(|sort| json!(sort)).collect(),
        "rows_max" => vec![json!(0), json!(1), json!(ROWS_MAX), json!(ROWS_MAX + 1)],
        _ => vec![json!("x")],
    };
    for (path, verb) in routes {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        for name in ["by", "list", "site", "sort", "rows_max"] {
            let documented =
                parameters.iter().find(|parameter| parameter["name"] == name).map(|found| &found["schema"]);
            for value in all(name) {
                // An order may apply to one kind of rows only.
                let fields = |by: Option<RowKind>| {
                    let by = by.map(|by| ("by".to_owned(), json!(by)));
                    by.into_iter().chain([(name.to_owned(), value.clone())]).collect::<Map<_, _>>()
                };
                let bys = [None].into_iter().chain(RowKind::value_variants().iter().copied().map(Some));
                let is_taken =
                    bys.filter(|by| by.is_none() || name == "sort").any(|by| request(verb, fields(by), None).is_ok());
                let is_in = |schema: &Value| match (&schema["enum"], value.as_u64()) {
                    (Value::Array(values), _) => words(values).contains(value.as_str().unwrap_or_default()),
                    (_, Some(number)) => {
                        schema["minimum"].as_u64().unwrap() <= number
                            && schema["maximum"].as_u64().is_none_or(|most| number <= most)
                    }
                    _ => true,
                };
                assert_eq!(is_taken, documented.is_some_and(is_in), "{path}: {name} {value}");
            }
        }
    }
    let default = |path: &str| {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        parameters.iter().find(|parameter| parameter["name"] == "rows_max").unwrap()["schema"]["default"].clone()
    };
    assert_eq!([default("/api/v1/queue"), default("/api/v1/hosts")], [json!(50), json!(20)]);
}

#[test]
fn arguments_are_those_of_the_control_socket() {
    let query = |pairs: &[(&str, &str)]| {
        from_query(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    assert_eq!(request("queue", query(&[("sites_max", "7")]), None).unwrap(), Request::Queue(View::rows(7)));
    for bad in [("sites_max", "x"), ("sites_max", "-1"), ("sites", "7"), ("v", "1"), ("verb", "stop")] {
        assert!(request("queue", query(&[bad]), None).is_err(), "{bad:?}");
    }
    let id = || Some(("id", "00000000002D".to_owned()));
    assert!(request("queue_show", query(&[("id", "00000000002E")]), id()).is_err());
    let hold = request("hold", Map::new(), id()).unwrap();
    assert!(matches!(hold, Request::Act { selection, .. } if selection.ids.len() == 1));
    assert!(request("hold", Map::new(), None).is_err(), "no selector is not everything");
}

/// Whether a value fits a schema, limited to the features that our schemas use.
fn fits(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{at}: {reference}"));
        return fits(document, target, value, at);
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(items) => {
            for item in items {
                fits(document, &schema["items"], item, at);
            }
            "array"
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let named = &schema["properties"][name];
                let property = if named.is_null() { &schema["additionalProperties"] } else { named };
                assert!(!property.is_null(), "{at}.{name} is not in the schema");
                fits(document, property, value, &format!("{at}.{name}"));
            }
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(fields.contains_key(name.as_str().unwrap()), "{at} lacks {name}");
            }
            "object"
        }
    };
    assert!(kinds.contains(&kind), "{at}: {kind} is none of {kinds:?}");
}

#[test]
fn examples_and_least_answers_fit_their_schemas() {
    let document = openapi::document();
    for sample in openapi::samples::all() {
        let schema = &document["components"]["schemas"][sample.name];
        fits(&document, schema, &sample.full, sample.name);
        fits(&document, schema, &sample.least, sample.name);
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values() {
            for response in operation["responses"].as_object().unwrap().values() {
                for content in response["content"].as_object().into_iter().flat_map(Map::values) {
                    if let Some(example) = content.get("example") {
                        fits(&document, &content["schema"], example, path);
                    }
                }
            }
        }
    }
}
