//! The `OpenAPI` 3.1 document: routes are described here; the schemas of answers come from the real types
//! ([`super::samples`]).

use serde_json::{Map, Value, json};
use stentor_control::selection::REASON_BYTES_MAX;
use stentor_control::view::{ROWS_MAX, Subject};

use super::samples::{Sample, all};

/// The input of a route.
enum RouteInput {
    Nothing,
    /// Query parameters: name, type, meaning.
    Query(&'static [(&'static str, &'static str, &'static str)]),
    /// A command's view as a query, and further parameters.
    View(Subject, &'static [(&'static str, &'static str, &'static str)]),
    /// Fields of a JSON body: name, type, meaning.
    Body(&'static [(&'static str, &'static str, &'static str)]),
    /// A message.
    Mail,
}

struct Route {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    takes: RouteInput,
    /// The schema of the answer; empty if another page documents it (docs/operate/statistics.md, `OpenAPI` itself).
    gives: &'static str,
}

const SELECTORS: &[(&str, &str, &str)] = &[
    ("id", "string", "A queue id; in a request body also an array of queue ids."),
    ("sender", "string", "Envelope sender: exact, empty for the null path, or @domain."),
    ("recipient", "string", "Recipient, exact or @domain."),
    ("site", "string", "A site's name, as in the queue."),
    ("list", "string", "A list's name."),
    ("age_s_min", "integer", "Minimum age in seconds."),
    ("age_s_max", "integer", "Maximum age in seconds."),
    ("all", "boolean", "Select everything; excludes other selectors."),
    ("as_of", "string", "Only mail queued when a dry run returned this value."),
];
const ACTS: &[(&str, &str, &str)] = &[
    ("id", "ids", "A queue id, or several."),
    SELECTORS[1],
    SELECTORS[2],
    SELECTORS[3],
    SELECTORS[4],
    SELECTORS[5],
    SELECTORS[6],
    SELECTORS[7],
    SELECTORS[8],
    ("dry_run", "boolean", "Only count the affected recipients."),
    ("reason", "string", "Recorded in the journal's audit record and in the DSNs of `bounce`."),
];
const KEPT: &[(&str, &str, &str)] = &[
    SELECTORS[0],
    SELECTORS[1],
    SELECTORS[2],
    SELECTORS[4],
    SELECTORS[5],
    SELECTORS[6],
    ("rows_max", "integer", "Maximum number of messages returned."),
    ("after", "string", "Continue after this queue id: `next` of the previous answer."),
];
const LEAVES: &[(&str, &str, &str)] = &[
    ACTS[0],
    ACTS[1],
    ACTS[2],
    ACTS[4],
    ACTS[5],
    ACTS[6],
    ACTS[7],
    ACTS[8],
    ACTS[9],
    ("reason", "string", "Recorded in the journal's audit record."),
];
const LIST: (&str, &str, &str) = ("list", "string", "Mail of this list only.");
const SITE: (&str, &str, &str) = ("site", "string", "Mail to this site only: its name, or a domain that it serves.");
const BOUNCES: &[(&str, &str, &str)] = &[
    ACTS[0],
    ACTS[1],
    ACTS[2],
    ACTS[3],
    ACTS[4],
    ACTS[5],
    ACTS[6],
    ACTS[7],
    ACTS[8],
    ACTS[9],
    ACTS[10],
    (
        "for_s",
        "integer",
        "Also bounce mail that arrives within this many seconds (sender, recipient domain, site, list).",
    ),
    ("end", "boolean", "End such a standing bounce early."),
];
const SUSPENDS: &[(&str, &str, &str)] = &[
    SUSPENDED[0],
    SUSPENDED[1],
    SUSPENDED[2],
    SUSPENDED[3],
    SUSPENDED[4],
    ("for_s", "integer", "The suspension expires after this many seconds."),
    ("dry_run", "boolean", "Only count the waiting recipients that it would stop."),
];
const SUSPENDED: &[(&str, &str, &str)] = &[
    ("list", "string", "All posts of this list; with `subscriber`, only those to one subscriber."),
    ("sender", "string", "All mail from this domain."),
    ("site", "string", "All mail to this site."),
    ("subscriber", "string", "An address; needs `list`."),
    ("reason", "string", "Recorded in the journal's audit record."),
];
const QUEUE_ONLY: &[(&str, &str, &str)] = &[
    ("all", "boolean", "All mail."),
    ("class", "string", "Mail of one class: `ordinary` or `bulk`."),
    ("list", "string", "Posts of this list."),
    ("domain", "string", "Recipients at this domain."),
    ("sender", "string", "Mail of this envelope sender: an address, `@domain`, or empty for the null sender."),
    ("client", "string", "Mail received from this address, network or local user."),
    ("source", "string", "Mail that can leave only from this configured source."),
    ("for_s", "integer", "Seconds until it expires."),
    ("end", "boolean", "End queue-only mode."),
    ("dry_run", "boolean", "Only count the waiting recipients in its scope."),
    ("reason", "string", "Recorded in the journal's audit record, and shown."),
];
const REASON: &[(&str, &str, &str)] = &[
    ("dry_run", "boolean", "Only count the affected recipients."),
    ("reason", "string", "Recorded in the journal's audit record."),
];

const ROUTES: &[Route] = &[
    Route {
        method: "get",
        path: "/api/v1/status",
        summary: "The server at a glance.",
        takes: RouteInput::Nothing,
        gives: "Status",
    },
    Route {
        method: "get",
        path: "/api/v1/queue",
        summary: "Queue totals, and sites by number of recipients.",
        takes: RouteInput::View(Subject::Queue, &[]),
        gives: "Queue",
    },
    Route {
        method: "get",
        path: "/api/v1/queue/ages",
        summary: "Pending recipients by site and age, as `mailqq` with `by=age`.",
        takes: RouteInput::View(Subject::Ages, &[]),
        gives: "Ages",
    },
    Route {
        method: "get",
        path: "/api/v1/queue/stuck",
        summary: "Recipients and sites with the most waiting messages.",
        takes: RouteInput::View(Subject::Stuck, &[]),
        gives: "Stuck",
    },
    Route {
        method: "get",
        path: "/api/v1/queue/export",
        summary: "Messages with envelope and pending recipients, one JSON object per line; the last line has `end` or \
            `error`.",
        takes: RouteInput::Query(SELECTORS),
        gives: "Envelope",
    },
    Route {
        method: "get",
        path: "/api/v1/messages/{id}",
        summary: "One message and its pending recipients.",
        takes: RouteInput::Query(&[(
            "recipients_max",
            "integer",
            "Maximum number of recipients returned (default 1000, at most 10000).",
        )]),
        gives: "Message",
    },
    Route {
        method: "post",
        path: "/api/v1/messages",
        summary: "Submits a message. 201 means that it is durable.",
        takes: RouteInput::Mail,
        gives: "Injected",
    },
    Route {
        method: "get",
        path: "/api/v1/addresses/{address}",
        summary: "Waiting mail, history and suspensions of one address.",
        takes: RouteInput::Nothing,
        gives: "Address",
    },
    Route {
        method: "get",
        path: "/api/v1/sites/{name}",
        summary: "One site: its waiting mail, and why it waits.",
        takes: RouteInput::Query(&[LIST]),
        gives: "Site",
    },
    Route {
        method: "get",
        path: "/api/v1/openapi.json",
        summary: "This document.",
        takes: RouteInput::Nothing,
        gives: "",
    },
    Route {
        method: "get",
        path: "/api/v1/mailqq",
        summary: "Messages by their pending recipients, as `stentor mailqq` shows them.",
        takes: RouteInput::Query(&[
            ("sort", "string", "count (default), age or size."),
            ("rows_max", "integer", "Number of rows (default 20, at most 1000)."),
            ("list", "string", "Posts of this list."),
            ("sender", "string", "Envelope sender: exact, empty for the null path, or @domain."),
            ("site", "string", "With recipients at this site."),
            ("age_s_min", "integer", "Minimum age in seconds."),
            ("age_s_max", "integer", "Maximum age in seconds."),
            ("after", "string", "Cursor of the previous answer."),
        ]),
        gives: "Mailqq",
    },
    Route {
        method: "get",
        path: "/api/v1/hosts",
        summary: "Sites and their hosts with history, clock, reason and last replies, as `stentor hosts` shows them.",
        takes: RouteInput::View(
            Subject::Hosts,
            &[
                ("offset", "integer", "Rows to skip."),
                ("name", "string", "Only sites whose name, or a host's name, contains this text."),
                ("waiting", "boolean", "Only sites with pending recipients."),
                ("failing", "boolean", "Only sites with a host whose last attempt failed."),
            ],
        ),
        gives: "Hosts",
    },
    Route {
        method: "get",
        path: "/api/v1/posts",
        summary: "Delivery reports of the newest posts.",
        takes: RouteInput::View(Subject::Report, &[]),
        gives: "Posts",
    },
    Route {
        method: "get",
        path: "/api/v1/posts/{id}",
        summary: "The delivery report of one post.",
        takes: RouteInput::Nothing,
        gives: "Posts",
    },
    Route {
        method: "get",
        path: "/api/v1/mailstat",
        summary: "Statistics from the history, as `stentor mailstat` prints them, over at most a week; hours and days \
            are in UTC.",
        takes: RouteInput::Query(&[
            ("by", "string", "Group rows by hour (default), day, list, site, host or source."),
            ("since", "integer", "Start, in milliseconds since the Unix epoch (default: a day before `until`)."),
            ("until", "integer", "End, exclusive, in milliseconds since the Unix epoch (default: now)."),
        ]),
        gives: "",
    },
    Route {
        method: "get",
        path: "/api/v1/trace/{what}",
        summary: "Events of a queue id, Message-ID or recipient from the history.",
        takes: RouteInput::Nothing,
        gives: "",
    },
    Route {
        method: "get",
        path: "/api/v1/webhooks",
        summary: "State of each webhook endpoint.",
        takes: RouteInput::Nothing,
        gives: "Webhooks",
    },
    Route {
        method: "get",
        path: "/api/v1/users",
        summary: "Users with their submissions of the last hour and day, and their limits. Needs a login.",
        takes: RouteInput::Nothing,
        gives: "Users",
    },
    Route {
        method: "post",
        path: "/api/v1/suspend",
        summary: "Suspends delivery for a list, a sender, a site, or one subscriber of a list.",
        takes: RouteInput::Body(SUSPENDS),
        gives: "Done",
    },
    Route {
        method: "post",
        path: "/api/v1/resume",
        summary: "Ends a suspension.",
        takes: RouteInput::Body(SUSPENDED),
        gives: "Done",
    },
    Route {
        method: "post",
        path: "/api/v1/flush",
        summary: "Tries waiting mail now: all of it, or one site's.",
        takes: RouteInput::Body(&[
            ("site", "string", "A site's name, as in the queue."),
            ("dry_run", "boolean", "Only count the recipients that would be tried."),
        ]),
        gives: "Done",
    },
    Route {
        method: "get",
        path: "/api/v1/quarantine",
        summary: "Messages in the quarantine, oldest first, with their header fields.",
        takes: RouteInput::Query(KEPT),
        gives: "Quarantine",
    },
    Route {
        method: "get",
        path: "/api/v1/quarantine/{id}",
        summary: "A quarantined message, decoded: header, text, names of attachments. Needs a login.",
        takes: RouteInput::Nothing,
        gives: "Quarantined",
    },
    Route {
        method: "post",
        path: "/api/v1/quarantine/release",
        summary: "Releases quarantined messages: they are delivered as if just accepted, without another check of the \
            rules.",
        takes: RouteInput::Body(LEAVES),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/quarantine/delete",
        summary: "Deletes quarantined messages without a bounce.",
        takes: RouteInput::Body(LEAVES),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/quarantine/copy",
        summary: "Sends a copy of a quarantined message to another address; the message stays in the quarantine.",
        takes: RouteInput::Body(&[
            ("id", "string", "The queue id."),
            ("to", "string", "Recipient of the copy."),
            ("reason", "string", "Reason, for the audit record."),
        ]),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/queue-only",
        summary: "Starts or ends queue-only mode: mail is accepted but not tried.",
        takes: RouteInput::Body(QUEUE_ONLY),
        gives: "Done",
    },
    Route {
        method: "post",
        path: "/api/v1/queue/run",
        summary: "Tries all mail in the queue once, including queue-only mail.",
        takes: RouteInput::Body(&[
            ("dry_run", "boolean", "Only count the recipients, without trying them."),
            ("reason", "string", "Recorded in the journal's audit record."),
        ]),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/hold",
        summary: "Holds mail until it is released.",
        takes: RouteInput::Body(ACTS),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/release",
        summary: "Ends a hold.",
        takes: RouteInput::Body(ACTS),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/remove",
        summary: "Removes recipients from the queue without a bounce.",
        takes: RouteInput::Body(ACTS),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/bounce",
        summary: "Bounces recipients now, or for a limited time.",
        takes: RouteInput::Body(BOUNCES),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/requeue",
        summary: "Requeues recipients: they are tried now, as if just accepted.",
        takes: RouteInput::Body(ACTS),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/reload",
        summary: "Reloads the configuration.",
        takes: RouteInput::Nothing,
        gives: "Done",
    },
    Route {
        method: "post",
        path: "/api/v1/posts/{id}/pause",
        summary: "Holds undelivered copies of a post.",
        takes: RouteInput::Body(REASON),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/posts/{id}/resume",
        summary: "Resumes a paused post.",
        takes: RouteInput::Body(REASON),
        gives: "Counted",
    },
    Route {
        method: "post",
        path: "/api/v1/posts/{id}/cancel",
        summary: "Removes undelivered copies of a post without a bounce.",
        takes: RouteInput::Body(REASON),
        gives: "Counted",
    },
];

/// The whole document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method] = operation(route);
    }
    let schemas: Map<String, Value> = all().iter().map(|sample| (sample.name.to_owned(), schema(sample))).collect();
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
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}, "example": example("Error")}},
            }},
        },
    })
}

fn example(name: &str) -> Value {
    all().into_iter().find(|sample| sample.name == name).map_or(Value::Null, |sample| sample.full)
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    for part in route.path.split('/').filter_map(|part| part.strip_prefix('{')) {
        let name = part.trim_end_matches('}');
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    }
    let mut operation = json!({"summary": route.summary, "operationId": operation_id(route)});
    match &route.takes {
        RouteInput::Nothing => {}
        RouteInput::Query(query) => parameters.extend(query_parameters(query)),
        RouteInput::View(command, others) => {
            parameters.extend(view_parameters(*command));
            parameters.extend(query_parameters(others));
        }
        RouteInput::Body(fields) => {
            operation["requestBody"] = json!({"content": {"application/json": {"schema": body(fields)}}});
        }
        RouteInput::Mail => {
            parameters.extend(mail_parameters());
            operation["requestBody"] = mail_body();
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    let ok = if matches!(route.takes, RouteInput::Mail) { "201" } else { "200" };
    let kind = if route.path.ends_with("/export") { "application/x-ndjson" } else { "application/json" };
    let content = match route.gives {
        "" => json!({"schema": {"type": "object"}}),
        // The schema describes one line.
        name if kind == "application/x-ndjson" => json!({"schema": reference(name)}),
        name => json!({"schema": reference(name), "example": example(name)}),
    };
    let refused = json!({"$ref": "#/components/responses/Error"});
    operation["responses"] = json!({"default": refused.clone()});
    operation["responses"][ok] = json!({"description": route.summary, "content": {kind: content}});
    if route.method == "post" {
        operation["security"] = json!([{"token": []}]);
        operation["responses"]["401"] = refused.clone();
        operation["responses"]["503"] = refused;
    } else {
        // A token is optional, unless reading needs a login.
        operation["security"] = json!([{}, {"token": []}]);
    }
    operation
}

fn query_parameters(query: &'static [(&str, &str, &str)]) -> impl Iterator<Item = Value> {
    query.iter().map(
        |(name, kind, meaning)| json!({"name": name, "in": "query", "description": meaning, "schema": {"type": kind}}),
    )
}

/// A command's rows, orders and limits; its requests are checked against the same values.
fn view_parameters(command: Subject) -> Vec<Value> {
    let words = |value: Value, default: &str, meaning: &str| {
        let description = format!("{meaning} (default: {default}).");
        (description, json!({"type": "string", "enum": value}))
    };
    let mut parameters = Vec::new();
    if !command.rows().is_empty() {
        let rows = json!(command.rows());
        let only = rows.as_array().filter(|rows| rows.len() == 1).and_then(|rows| rows[0].as_str());
        let default = only.unwrap_or("all that the answer contains");
        parameters.push(("by", words(rows.clone(), default, "Group rows by")));
    }
    let text = || json!({"type": "string"});
    parameters.push(("list", (LIST.2.to_owned(), text())));
    if command.takes_site() {
        parameters.push(("site", (SITE.2.to_owned(), text())));
    }
    let orders = command.all_orders();
    if !orders.is_empty() {
        let default = command.default_sort(None).map(|sort| json!(sort));
        let default = default.as_ref().and_then(Value::as_str).unwrap_or("newest first");
        parameters.push(("sort", words(json!(orders), default, "Order of rows")));
    }
    let (least, most) = command.rows_range();
    let mut number = json!({"type": "integer", "minimum": least, "default": command.default_rows()});
    if most == ROWS_MAX {
        number["maximum"] = most.into();
    }
    parameters.push(("rows_max", ("Number of rows of each kind.".to_owned(), number)));
    let parameter = |(name, (description, schema)): (&str, (String, Value))| json!({"name": name, "in": "query", "description": description, "schema": schema});
    parameters.into_iter().map(parameter).collect()
}

fn operation_id(route: &Route) -> String {
    let words = route.path.trim_start_matches("/api/v1/").split(['/', '.']).map(|word| word.trim_matches(['{', '}']));
    format!("{}_{}", route.method, words.collect::<Vec<_>>().join("_"))
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn body(fields: &[(&str, &str, &str)]) -> Value {
    let mut properties = Map::new();
    for (name, kind, meaning) in fields {
        let mut property = match *kind {
            "ids" => {
                json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
            }
            kind => json!({"type": kind}),
        };
        property["description"] = (*meaning).into();
        if *name == "reason" {
            property["maxLength"] = REASON_BYTES_MAX.into();
        }
        properties.insert((*name).to_owned(), property);
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

fn mail_parameters() -> Vec<Value> {
    let text = json!({"type": "string"});
    let many = json!({"type": "array", "items": {"type": "string"}});
    let query = |name: &str, schema: &Value, meaning: &str| json!({"name": name, "in": "query", "schema": schema, "description": format!("{meaning} For a message/rfc822 body.")});
    vec![
        query("sender", &text, "Envelope sender, empty for the null path."),
        query("recipient", &many, "A recipient; may be repeated."),
        query("list", &text, "A list's name, instead of its address."),
        query("partial", &json!({"type": "boolean"}), "Send even if some recipients are refused."),
        json!({"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "minLength": 1, "maxLength": super::idempotency::KEY_BYTES_MAX},
            "description": "A repeated request with the same key gets the answer of the first, for a day or until a \
             restart."}),
        json!({"name": "traceparent", "in": "header", "schema": {"type": "string"},
            "description": "W3C Trace Context: the message's spans join this trace."}),
    ]
}

fn mail_body() -> Value {
    let mut json_body = body(&[
        ("sender", "string", "Envelope sender, empty for the null path."),
        ("list", "string", "A list's name, instead of its address among the recipients."),
        ("message", "string", "The message (RFC 5322) as text."),
        ("message_base64", "string", "The message in base64, instead of `message`."),
        ("partial", "boolean", "Send even if some recipients are refused."),
    ]);
    json_body["properties"]["recipients"] = json!({"type": "array", "items": {"type": "string"}});
    let example =
        json!({"sender": "me@example.org", "recipients": ["ann@example.net"], "message": "Subject: Hello\n\nHello.\n"});
    json!({"required": true, "content": {
        "message/rfc822": {"schema": {"type": "string"}},
        "application/json": {"schema": json_body, "example": example},
    }})
}

/// The schema of a sample: fields missing in the default are optional, fields that are null there are nullable.
fn schema(sample: &Sample) -> Value {
    of(&sample.full, Some(&sample.least))
}

fn of(full: &Value, least: Option<&Value>) -> Value {
    let named = |kind: &str| match least {
        Some(Value::Null) => json!({"type": [kind, "null"]}),
        _ => json!({"type": kind}),
    };
    match full {
        Value::Null => json!({}),
        Value::Bool(_) => named("boolean"),
        Value::Number(number) if number.is_f64() => named("number"),
        Value::Number(_) => named("integer"),
        Value::String(_) => named("string"),
        Value::Array(items) => {
            json!({"type": "array", "items": items.first().map_or(json!({}), |item| of(item, None))})
        }
        Value::Object(fields) => {
            let in_least = |name: &String| least.and_then(|least| least.get(name));
            let properties: Map<String, Value> = fields
                .iter()
                .map(|(name, value)| {
                    // Rows have no default to compare with: any field may be null.
                    let loose = if least.is_none() { Some(&Value::Null) } else { in_least(name) };
                    (
                        name.clone(),
                        of(value, loose.filter(|_| !value.is_array() && !value.is_object() || least.is_some())),
                    )
                })
                .collect();
            let required: Vec<&String> = fields.keys().filter(|name| in_least(name).is_some()).collect();
            let mut object = json!({"type": "object", "properties": properties});
            if !required.is_empty() {
                object["required"] = json!(required);
            }
            object
        }
    }
}
