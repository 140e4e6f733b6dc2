//! Parses `type:name`, as in main.cf.

use std::fmt;
use std::path::{Path, PathBuf};

/// A table, as named in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// `inline:{key=value, {key = value with blanks}}`
    Inline(Vec<(String, String)>),
    /// `static:value`: all keys have this value.
    Static(String),
    File {
        format: Format,
        path: PathBuf,
    },
    /// `unionmap:{type:name, ...}`
    Union(Vec<Reference>),
    /// `pipemap:{type:name, ...}`
    Pipe(Vec<Reference>),
    /// A table behind a socket.
    Socketmap(SocketmapAddress),
}

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text in Postfix's format.
    Postmap,
    /// Text in makemap's format.
    Makemap,
    Aliases,
    Cdb,
    Lmdb,
    Regexp,
    Pcre,
    Cidr,
}

/// Address of a socketmap, and the table's name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketmapAddress {
    Inet { host: String, port: u16, name: String },
    Unix { path: PathBuf, name: String },
}

impl SocketmapAddress {
    pub fn name(&self) -> &str {
        match self {
            Self::Inet { name, .. } | Self::Unix { name, .. } => name,
        }
    }
}

impl fmt::Display for SocketmapAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet { host, port, name } => write!(out, "inet:{host}:{port}:{name}"),
            Self::Unix { path, name } => write!(out, "unix:{}:{name}", path.display()),
        }
    }
}

/// Why a text is not a valid table name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("{0:?} is not a table: write TYPE:NAME, for example hash:/etc/postfix/access")]
    NoType(String),
    #[error("{0:?} is not a table type; valid types: {KNOWN}")]
    UnknownType(String),
    #[error(
        "{0}: not supported directly; use a program that speaks socketmap, and write \
        socketmap:inet:HOST:PORT:NAME"
    )]
    Database(String),
    #[error("{0:?}: write {1}")]
    Syntax(String, &'static str),
    #[error("tables are nested too deeply in {0:?}")]
    TooDeep(String),
}

const KNOWN: &str = "hash, btree, dbm, sdbm, texthash, makemap, aliases, cdb, lmdb, regexp, pcre, cidr, inline, static, \
                     unionmap, pipemap, socketmap";
/// Maximum nesting of tables.
const DEPTH_MAX: usize = 4;

impl Reference {
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        parse(text.trim(), 0)
    }

    /// Makes relative paths relative to a folder.
    #[must_use]
    pub fn below(self, folder: &Path) -> Self {
        let all = |tables: Vec<Self>| tables.into_iter().map(|table| table.below(folder)).collect();
        match self {
            Self::File { format, path } => Self::File { format, path: folder.join(path) },
            Self::Union(tables) => Self::Union(all(tables)),
            Self::Pipe(tables) => Self::Pipe(all(tables)),
            Self::Socketmap(SocketmapAddress::Unix { path, name }) => {
                Self::Socketmap(SocketmapAddress::Unix { path: folder.join(path), name })
            }
            Self::Inline(_) | Self::Static(_) | Self::Socketmap(SocketmapAddress::Inet { .. }) => self,
        }
    }

    /// The files of the table.
    pub fn files(&self) -> Vec<&Path> {
        match self {
            Self::File { path, .. } => vec![path],
            Self::Union(tables) | Self::Pipe(tables) => tables.iter().flat_map(Self::files).collect(),
            Self::Inline(_) | Self::Static(_) | Self::Socketmap(_) => Vec::new(),
        }
    }
}

fn parse(text: &str, depth: usize) -> Result<Reference, ReferenceError> {
    if depth > DEPTH_MAX {
        return Err(ReferenceError::TooDeep(text.into()));
    }
    let no_type = || ReferenceError::NoType(text.into());
    let (kind, name) = text.split_once(':').ok_or_else(no_type)?;
    if kind.contains(['/', ' ', '{']) || name.is_empty() {
        return Err(no_type());
    }
    let file = |format, suffix: &str| Ok(Reference::File { format, path: PathBuf::from(format!("{name}{suffix}")) });
    let tables = |usage| -> Result<Vec<Reference>, ReferenceError> {
        let wrong = || ReferenceError::Syntax(text.into(), usage);
        let parts = parts(braced(name).ok_or_else(wrong)?).ok_or_else(wrong)?;
        if parts.is_empty() {
            return Err(wrong());
        }
        parts.into_iter().map(|part| parse(braced(part).map_or(part, str::trim), depth + 1)).collect()
    };
    match kind {
        // The text file is read, not the database built from it.
        "hash" | "btree" | "dbm" | "sdbm" | "texthash" => file(Format::Postmap, ""),
        "makemap" => file(Format::Makemap, ""),
        "aliases" => file(Format::Aliases, ""),
        "regexp" => file(Format::Regexp, ""),
        "pcre" => file(Format::Pcre, ""),
        "cidr" => file(Format::Cidr, ""),
        "cdb" => file(Format::Cdb, ".cdb"),
        "lmdb" => file(Format::Lmdb, ".lmdb"),
        // It makes no difference here which process does the lookup.
        "proxy" => parse(name, depth + 1),
        "static" => Ok(Reference::Static(braced(name).map_or(name, str::trim).to_owned())),
        "inline" => inline(text, name),
        "unionmap" => tables("unionmap:{type:name, type:name, ...}").map(Reference::Union),
        "pipemap" => tables("pipemap:{type:name, type:name, ...}").map(Reference::Pipe),
        "socketmap" => endpoint(name).map(Reference::Socketmap).ok_or_else(|| {
            let usage = "socketmap:inet:HOST:PORT:NAME or socketmap:unix:PATH:NAME";
            ReferenceError::Syntax(text.into(), usage)
        }),
        "mysql" | "pgsql" | "sqlite" | "ldap" | "memcache" | "mongodb" | "nis" | "tcp" => {
            Err(ReferenceError::Database(kind.into()))
        }
        other => Err(ReferenceError::UnknownType(other.into())),
    }
}

fn inline(text: &str, name: &str) -> Result<Reference, ReferenceError> {
    let wrong = || ReferenceError::Syntax(text.into(), "inline:{key=value, {key = value with blanks}, ...}");
    let parts = parts(braced(name).ok_or_else(wrong)?).ok_or_else(wrong)?;
    let pair = |part: &str| {
        let (key, value) = braced(part).unwrap_or(part).split_once('=')?;
        (!key.trim().is_empty()).then(|| (key.trim().to_owned(), value.trim().to_owned()))
    };
    let pairs: Option<Vec<_>> = parts.into_iter().map(pair).collect();
    pairs.filter(|pairs| !pairs.is_empty()).map(Reference::Inline).ok_or_else(wrong)
}

fn endpoint(name: &str) -> Option<SocketmapAddress> {
    let (kind, rest) = name.split_once(':')?;
    let (place, name) = rest.rsplit_once(':')?;
    if place.is_empty() || name.is_empty() {
        return None;
    }
    match kind {
        "inet" => {
            let (host, port) = place.rsplit_once(':')?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let port = port.parse().ok().filter(|&port| port > 0)?;
            (!host.is_empty()).then(|| SocketmapAddress::Inet { host: host.into(), port, name: name.into() })
        }
        "unix" => Some(SocketmapAddress::Unix { path: place.into(), name: name.into() }),
        _ => None,
    }
}

/// The text inside the outer braces.
fn braced(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut depth = 0_i32;
    for letter in inside.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if depth < 0 {
            return None;
        }
    }
    (depth == 0).then_some(inside)
}

/// Splits at commas and blanks outside braces.
fn parts(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), None, 0_i32);
    for (at, letter) in text.char_indices() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        let separates = depth == 0 && (letter == ',' || letter.is_ascii_whitespace());
        match (separates, begin) {
            (true, Some(first)) => {
                parts.push(&text[first..at]);
                begin = None;
            }
            (false, None) => begin = Some(at),
            _ => {}
        }
    }
    parts.extend(begin.map(|first| &text[first..]));
    (depth == 0).then_some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_files() {
        let parsed = |text: &str| Reference::parse(text).unwrap();
        let file = |format, path: &str| Reference::File { format, path: path.into() };
        assert_eq!(parsed("hash:/etc/postfix/access"), file(Format::Postmap, "/etc/postfix/access"));
        assert_eq!(parsed("proxy:btree:/a:b"), file(Format::Postmap, "/a:b"));
        assert_eq!(parsed("cdb:/a"), file(Format::Cdb, "/a.cdb"));
        assert_eq!(parsed("lmdb:/a"), file(Format::Lmdb, "/a.lmdb"));
        let both = parsed("unionmap:{hash:/a, {pipemap:{regexp:/b,cidr:/c}} , static:{x y}}");
        assert_eq!(both.files(), [Path::new("/a"), Path::new("/b"), Path::new("/c")]);
        let relative = parsed("unionmap:{hash:a, {pipemap:{regexp:/b,cdb:c}}}").below(Path::new("/etc"));
        assert_eq!(relative.files(), [Path::new("/etc/a"), Path::new("/b"), Path::new("/etc/c.cdb")]);
    }

    #[test]
    fn inline_and_static() {
        let pairs = |pairs: &[(&str, &str)]| {
            Reference::Inline(pairs.iter().map(|&(key, value)| (key.into(), value.into())).collect())
        };
        let parsed = Reference::parse("inline:{a=1, { b = two words },c=}").unwrap();
        assert_eq!(parsed, pairs(&[("a", "1"), ("b", "two words"), ("c", "")]));
        assert_eq!(Reference::parse("static:{ a b }"), Ok(Reference::Static("a b".into())));
        assert_eq!(Reference::parse("static:OK"), Ok(Reference::Static("OK".into())));
    }

    #[test]
    fn endpoints() {
        let endpoint = |text: &str| match Reference::parse(text) {
            Ok(Reference::Socketmap(endpoint)) => endpoint.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(endpoint("socketmap:inet:[::1]:7000:virtual"), "inet:::1:7000:virtual");
        assert_eq!(endpoint("socketmap:unix:/run/a:b:alias"), "unix:/run/a:b:alias");
    }

    #[test]
    fn what_names_no_table() {
        for (text, says) in [
            ("/etc/access", "TYPE:NAME"),
            ("hash:", "TYPE:NAME"),
            ("mysql:/a", "socketmap"),
            ("mdb:/a", "valid types: hash"),
            ("inline:{a}", "inline:{key=value"),
            ("inline:{}", "inline:{key=value"),
            ("unionmap:{hash:/a", "unionmap:{"),
            ("socketmap:inet:host:port:x", "socketmap:inet:HOST"),
        ] {
            let error = Reference::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let deep = "unionmap:{".repeat(9) + "hash:/a" + &"}".repeat(9);
        assert!(matches!(Reference::parse(&deep), Err(ReferenceError::TooDeep(_))));
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "(inline|unionmap|static|pipemap|socketmap):[{}a=:, é]{0,20}") {
            let _ = Reference::parse(&text);
        }
    }
}
