//! A span in OTLP's JSON form (opentelemetry-proto `trace/v1/trace.proto`, JSON mapping: ids as hexadecimal, 64-bit
//! numbers as strings), and the parent that a client names (W3C Trace Context).

use serde_json::{Value as Json, json};
use stentor_config::keys::hex;
use stentor_core::observer::TraceParent;

/// An attribute's value.
pub(super) enum Value {
    Text(String),
    Number(u64),
}

/// `SpanKind`.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

pub(super) struct Span {
    pub trace: [u8; 16],
    pub id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub name: &'static str,
    pub kind: Kind,
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: Vec<(&'static str, Value)>,
    pub error: Option<String>,
}

impl Span {
    fn json(&self) -> Json {
        let attributes: Vec<Json> = self.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
        let mut span = json!({
            "traceId": hex(&self.trace),
            "spanId": hex(&self.id),
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": self.start_ns.to_string(),
            "endTimeUnixNano": self.end_ns.to_string(),
            "attributes": attributes,
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = hex(&parent).into();
        }
        if let Some(error) = &self.error {
            span["status"] = json!({"code": 2, "message": error});
        }
        span
    }
}

fn attribute(key: &str, value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({"key": key, "value": {"stringValue": text}}),
        Value::Number(number) => json!({"key": key, "value": {"intValue": number.to_string()}}),
    }
}

/// `ExportTraceServiceRequest`.
pub(super) fn request(hostname: &str, spans: &[Span]) -> Json {
    let resource = [
        ("service.name", Value::Text("stentor".to_owned())),
        ("service.version", Value::Text(env!("CARGO_PKG_VERSION").to_owned())),
        ("host.name", Value::Text(hostname.to_owned())),
    ];
    let resource: Vec<Json> = resource.iter().map(|(key, value)| attribute(key, value)).collect();
    let spans: Vec<Json> = spans.iter().map(Span::json).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "stentor"}, "spans": spans}],
    }]})
}

/// Parses the `traceparent` header: `00-TRACE-SPAN-FLAGS`.
pub fn trace_parent(text: &str) -> Option<TraceParent> {
    let mut parts = text.split('-');
    let version = octets::<1>(parts.next()?)?;
    let (trace, span) = (octets::<16>(parts.next()?)?, octets::<8>(parts.next()?)?);
    let flags = octets::<1>(parts.next()?)?;
    // Version ff is invalid; later versions may have more parts.
    let is_good = version[0] != 0xff && (version[0] != 0 || parts.next().is_none());
    let has_ids = trace != [0; 16] && span != [0; 8];
    (is_good && has_ids).then_some(TraceParent { trace, span, is_sampled: flags[0] & 1 == 1 })
}

fn octets<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.as_bytes().iter().all(digit) {
        return None;
    }
    let mut octets = [0; N];
    for (at, octet) in octets.iter_mut().enumerate() {
        *octet = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = trace_parent(good).unwrap();
        assert_eq!((hex(&parent.trace), hex(&parent.span)), (good[3..35].to_owned(), good[36..52].to_owned()));
        assert!(parent.is_sampled && !trace_parent(&good.replace("-01", "-00")).unwrap().is_sampled);
        for bad in [
            "",
            "00",
            "00-x-y-z",
            &good[..52],
            &format!("{good}-x"),
            &good.replace("00-", "ff-"),
            &good.to_uppercase(),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319é-b7ad6b7169203331-01",
        ] {
            assert_eq!(trace_parent(bad), None, "{bad}");
        }
    }
}
