//! Fields of the types that requests and answers consist of, read from their source: names and kinds from the structs,
//! optional fields from serde's attributes, descriptions from doc comments or [`super::words`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use syn::{Expr, GenericArgument, Item, Lit, Meta, MetaNameValue as NameValue, PathArguments, Token, Type};

use super::words::WORDS;

/// Placeholder for a missing description.
pub(super) const MISSING: &str = "TODO";
/// Sources, beside those of the control socket.
const SOURCES: [&str; 9] = [
    "domain-reports/src/dmarc/summary.rs",
    "domain-reports/src/dmarc/sums.rs",
    "http/src/api/answers.rs",
    "http/src/api/dmarc.rs",
    "http/src/api/history.rs",
    "http/src/api/inject.rs",
    "http/src/api/suppressions.rs",
    "push/src/webhooks/mod.rs",
    "records/src/health.rs",
];

pub(super) struct Field {
    pub name: String,
    pub description: String,
    pub kind: Type,
    /// The type has no value for a missing argument.
    pub is_needed: bool,
    /// An answer may omit it.
    is_omitted: bool,
    /// Its fields stand in place of it.
    is_flat: bool,
}

/// Structs with their fields, and enums, which are strings in JSON.
#[derive(Default)]
pub(super) struct Types {
    structs: BTreeMap<String, Vec<Field>>,
    enums: BTreeSet<String>,
    twice: BTreeSet<String>,
    /// Names whose description in [`WORDS`] is used.
    used: RefCell<BTreeSet<&'static str>>,
}

impl Types {
    pub fn read() -> Types {
        let mut types = Types::default();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let files = fs::read_dir(crates.join("control/src")).unwrap().map(|file| file.unwrap().path());
        for file in files.filter(|path| path.is_file()) {
            types.add(&file);
        }
        for source in SOURCES {
            types.add(&crates.join(source));
        }
        types
    }

    fn add(&mut self, file: &Path) {
        let source = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap();
        for item in source.items {
            match item {
                Item::Struct(item) => {
                    let fields = item.fields.iter().filter_map(Field::of).collect();
                    let name = item.ident.to_string();
                    if self.structs.insert(name.clone(), fields).is_some() {
                        self.twice.insert(name);
                    }
                }
                Item::Enum(item) => {
                    self.enums.insert(item.ident.to_string());
                }
                _ => {}
            }
        }
    }

    /// The fields of a struct, with those of its flattened fields.
    pub fn fields(&self, name: &str) -> Vec<&Field> {
        assert!(!self.twice.contains(name), "two types are called {name}");
        let fields = self.structs.get(name).unwrap_or_else(|| panic!("no source has the type {name}"));
        let flat = |field: &'_ Field| field.is_flat.then(|| last(&field.kind).0);
        fields.iter().flat_map(|field| flat(field).map_or_else(|| vec![field], |name| self.fields(&name))).collect()
    }

    /// A field's description.
    pub fn description(&self, field: &Field) -> String {
        let common = WORDS.iter().find(|(name, _)| *name == field.name).filter(|_| field.description.is_empty());
        self.used.borrow_mut().extend(common.map(|(name, _)| *name));
        match common {
            Some((_, words)) => (*words).to_owned(),
            None if field.description.is_empty() => MISSING.to_owned(),
            None => field.description.clone(),
        }
    }

    /// Names in [`WORDS`] that no field has needed so far.
    pub fn unused(&self) -> Vec<&'static str> {
        WORDS.iter().map(|(name, _)| *name).filter(|name| !self.used.borrow().contains(name)).collect()
    }

    /// The schema of a struct: an answer has every field that serde does not skip.
    pub fn object(&self, name: &str) -> Value {
        let fields = self.fields(name);
        let property = |field: &&Field| {
            let mut schema = self.schema(&field.kind, !field.is_omitted);
            schema["description"] = self.description(field).into();
            (field.name.clone(), schema)
        };
        let properties: Map<String, Value> = fields.iter().map(property).collect();
        let required: Vec<&String> = fields.iter().filter(|field| !field.is_omitted).map(|field| &field.name).collect();
        let mut object = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            object["required"] = json!(required);
        }
        object
    }

    /// The schema of a field's type. `may_be_null`: `None` is written as null.
    pub fn schema(&self, kind: &Type, may_be_null: bool) -> Value {
        let items = |kind: &Type| json!({"type": "array", "items": self.schema(kind, true)});
        match kind {
            Type::Array(array) => return items(&array.elem),
            Type::Tuple(tuple) => return items(&tuple.elems[0]),
            _ => {}
        }
        let (name, inner) = last(kind);
        let plain = |kind: &str| json!({"type": kind});
        match name.as_str() {
            "String" | "AsOf" | "MessageId" | "SocketAddr" | "IpAddr" => plain("string"),
            "bool" => plain("boolean"),
            "u8" | "u16" | "u32" | "u64" | "usize" | "Ms" => plain("integer"),
            "Ids" => {
                json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
            }
            "Vec" => items(&inner[0]),
            "BTreeMap" => json!({"type": "object", "additionalProperties": self.schema(&inner[1], true)}),
            "Option" => {
                let mut schema = self.schema(&inner[0], true);
                if may_be_null {
                    schema["type"] = json!([schema["type"], "null"]);
                }
                schema
            }
            name if self.enums.contains(name) => plain("string"),
            name => self.object(name),
        }
    }
}

impl Field {
    /// `None` if serde skips it.
    fn of(source: &syn::Field) -> Option<Field> {
        let name = source.ident.as_ref()?.to_string();
        let is_needed = last(&source.ty).0 != "Option";
        let kind = source.ty.clone();
        let mut field = Field { name, description: String::new(), kind, is_needed, is_omitted: false, is_flat: false };
        let mut is_skipped = false;
        for attribute in &source.attrs {
            match &attribute.meta {
                Meta::NameValue(NameValue { path, value: Expr::Lit(text), .. }) if path.is_ident("doc") => {
                    let Lit::Str(text) = &text.lit else { continue };
                    field.description.push_str(&text.value());
                }
                Meta::List(list) if list.path.is_ident("serde") => {
                    let parsed = list.parse_nested_meta(|meta| {
                        assert!(!meta.path.is_ident("rename"), "{}: a renamed field is not known here", field.name);
                        field.is_needed &= !meta.path.is_ident("default");
                        field.is_omitted |= meta.path.is_ident("skip_serializing_if");
                        field.is_flat |= meta.path.is_ident("flatten");
                        is_skipped |= meta.path.is_ident("skip");
                        if meta.input.peek(Token![=]) { meta.value()?.parse::<Expr>().map(drop) } else { Ok(()) }
                    });
                    parsed.unwrap();
                }
                _ => {}
            }
        }
        // Links and values of Rust mean nothing to a reader of JSON.
        field.description = field.description.trim().replace("`None`", "null").replace("[`", "`").replace("`]", "`");
        (!is_skipped).then_some(field)
    }
}

/// The last name of a type's path, and its arguments.
fn last(kind: &Type) -> (String, Vec<Type>) {
    let Type::Path(path) = kind else { return (String::new(), Vec::new()) };
    let Some(segment) = path.path.segments.last() else { return (String::new(), Vec::new()) };
    let PathArguments::AngleBracketed(types) = &segment.arguments else {
        return (segment.ident.to_string(), Vec::new());
    };
    let types = types.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind.clone()),
        _ => None,
    });
    (segment.ident.to_string(), types.collect())
}
