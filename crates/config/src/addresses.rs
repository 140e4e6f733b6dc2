//! `[addresses]`: the tables that rewrite and expand addresses.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use stentor_addresses::{HASH_CHARS_MAX, HASH_CHARS_MIN, Srs};
use stentor_mail::address::normalise_domain;
use stentor_policy::HostSpec;
use stentor_rules::{Addresses, Dialect, GenericTables, Masquerade, NextHop, Rewriting, TableId};

use super::diagnose::Spot;
use super::raw::Section;
use super::rule_sources::TableConfig;
use super::rules::find_table;

/// Route of deliveries to programs and files in alias files.
const PROGRAMS: &str = "pipe:aliases";
/// The default of postsrsd: accepted with a warning, and raised.
const SRS_HASH_CHARS_READ: u64 = 4;
/// Minimum length of a secret; a shorter one could be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// Settings of other sections that decide which domains are local.
pub(super) struct LocalDomains<'a> {
    pub hostname: &'a str,
    /// Virtual domains of `[domains]`, including its tables of them.
    pub virtuals: &'a [String],
    pub virtual_domain_tables: Vec<TableId>,
}

pub(super) fn read(section: Section<'_>, tables: &[TableConfig], own: LocalDomains<'_>) -> Addresses {
    let LocalDomains { hostname, virtuals, virtual_domain_tables } = own;
    let virtual_tables = named(&section, "virtual", tables, &[Dialect::Virtual, Dialect::Virtusertable]);
    let alias_tables = named(&section, "aliases", tables, &[Dialect::Aliases]);
    if virtual_tables.is_empty() && !(virtuals.is_empty() && virtual_domain_tables.is_empty()) {
        let message = "[domains] has virtual domains but no table of their users; set `virtual` in [addresses]";
        section.context.warn(section.span.clone(), message);
    }
    let mut alias_domains = BTreeSet::new();
    for text in section.texts("alias_domains").unwrap_or_default() {
        match normalise_domain(text.value) {
            Ok(domain) if virtuals.contains(&domain) => {
                let message =
                    format!("{:?} is a virtual domain of [domains]: alias files do not apply to it", text.value);
                section.context.error(text.span, message);
            }
            Ok(domain) => drop(alias_domains.insert(domain)),
            Err(_) => section.context.error(text.span, format!("{:?} is not a domain", text.value)),
        }
    }
    let mut origin = normalise_domain(hostname).unwrap_or_default();
    alias_domains.insert(origin.clone());
    if let Some(text) = section.text("origin") {
        match origin_of(&section, &text) {
            Ok(domain) => {
                if !domain.contains('.') && domain != "localhost" {
                    let message = format!(
                        "`origin` {domain:?} is not a fully qualified domain; write the full domain, or a file path containing `/` \
                         (`/etc/mailname`)"
                    );
                    section.context.warn(text.span, message);
                }
                origin = domain;
            }
            Err(why) => section.context.error(text.span, why),
        }
    }
    let programs = programs(&section);
    let srs = srs(&section);
    let rewriting = rewriting(&section, tables);
    let generic = generic(&section, tables);
    section.finish();
    Addresses {
        programs: Some(programs.into()),
        srs,
        rewriting,
        generic,
        virtual_tables,
        alias_tables,
        virtual_domain_tables,
        virtual_domains: virtuals.iter().map(|domain| domain.as_str().into()).collect(),
        alias_domains: alias_domains.into_iter().map(String::into_boxed_str).collect(),
        origin: origin.into(),
    }
}

/// Maximum size of a file that contains a domain.
const ORIGIN_FILE_BYTES_MAX: u64 = 4_096;

/// Reads a domain, or the file whose first line is one, as in Postfix's `myorigin = /etc/mailname`.
fn origin_of(section: &Section<'_>, text: &Spot<&str>) -> Result<String, String> {
    if !text.value.contains('/') {
        return normalise_domain(text.value).map_err(|_| format!("{:?} is not a domain", text.value));
    }
    let path = section.context.path(text.value);
    let next =
        if text.value.starts_with('/') { "" } else { " (relative paths start at the configuration's directory)" };
    let cannot = |why: &dyn std::fmt::Display| {
        format!(
            "`origin` is read as a file because it contains `/`, and `{}` {why}{next}; name a domain, or correct the path",
            path.display()
        )
    };
    let mut read = String::new();
    let file = regular(&path).and_then(fs::File::open).map(|file| file.take(ORIGIN_FILE_BYTES_MAX));
    file.and_then(|mut file| file.read_to_string(&mut read))
        .map_err(|error| cannot(&format_args!("cannot be read: {error}")))?;
    let first = read.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let first = first.ok_or_else(|| cannot(&"contains no domain"))?;
    normalise_domain(first).map_err(|_| cannot(&format_args!("does not begin with a domain: {first:?}")))
}

/// Returns the path if it can be opened without blocking; a pipe would wait for its writer.
fn regular(path: &Path) -> io::Result<&Path> {
    if fs::metadata(path)?.is_file() {
        Ok(path)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Next hop for programs. It must be a delivery agent on this machine, which has the alias file and the users that
/// its programs run as.
fn programs(section: &Section<'_>) -> NextHop {
    #[cfg(test)]
    section.note("programs", "string", Some(format!("`{PROGRAMS:?}`")));
    let ours = NextHop::hosts(std::iter::once(PROGRAMS), 0).unwrap_or(NextHop::Mx);
    let Some(text) = section.text("programs") else { return ours };
    match NextHop::hosts(std::iter::once(text.value), 0) {
        Ok(NextHop::Hosts(hosts)) if hosts.iter().all(|host| matches!(host.host, HostSpec::Unix(_))) => {
            NextHop::Hosts(hosts)
        }
        _ => {
            let message = format!("{:?} is not `pipe:NAME` or `lmtp:unix:/path`", text.value);
            section.context.error(text.span, message);
            ours
        }
    }
}

/// Reads the canonical tables and masquerading.
fn rewriting(section: &Section<'_>, tables: &[TableConfig]) -> Rewriting {
    let ids = |key| named(section, key, tables, &[Dialect::Canonical]);
    let (canonical, sender_canonical, recipient_canonical) =
        (ids("canonical"), ids("sender_canonical"), ids("recipient_canonical"));
    let mut domains: Vec<(bool, Box<str>)> = Vec::new();
    for text in section.texts("masquerade_domains").unwrap_or_default() {
        let (is_hidden, name) = text.value.strip_prefix('!').map_or((true, text.value), |name| (false, name));
        match normalise_domain(name) {
            Ok(domain) => domains.push((is_hidden, domain.into())),
            Err(_) => section.context.error(text.span, format!("{:?} is not a domain or \"!domain\"", text.value)),
        }
    }
    let exceptions = section.texts("masquerade_exceptions").unwrap_or_default();
    let exceptions = exceptions.into_iter().map(|text| text.value.into()).collect();
    Rewriting { canonical, sender_canonical, recipient_canonical, masquerade: Masquerade { domains, exceptions } }
}

/// Reads the generic tables, for addresses in mail to other hosts.
fn generic(section: &Section<'_>, tables: &[TableConfig]) -> GenericTables {
    let ids = named(section, "generic", tables, &[Dialect::Generic, Dialect::Genericstable]);
    let mut domains: Vec<Box<str>> = Vec::new();
    for text in section.texts("generic_domains").unwrap_or_default() {
        let (dot, name) = text.value.strip_prefix('.').map_or(("", text.value), |name| (".", name));
        match normalise_domain(name) {
            Ok(domain) => domains.push(format!("{dot}{domain}").into()),
            Err(_) => section.context.error(text.span, format!("{:?} is not a domain or .domain", text.value)),
        }
    }
    GenericTables { tables: ids, domains }
}

/// Reads `srs` and the keys that it needs.
fn srs(section: &Section<'_>) -> Option<Srs> {
    let context = section.context;
    let domain = section.text("srs");
    let file = section.text("srs_secret_file");
    let chars = section.number("srs_hash_chars", HASH_CHARS_MIN as u64, SRS_HASH_CHARS_READ..=HASH_CHARS_MAX as u64);
    let days = section.number("srs_days_max", 21, 1..=365);
    let domain = domain?;
    if chars < HASH_CHARS_MIN as u64 {
        let message = format!("`srs_hash_chars` is {chars}, but shorter hashes can be guessed; using {HASH_CHARS_MIN}");
        context.warn(section.span.clone(), message);
    }
    let name = normalise_domain(domain.value)
        .map_err(|_| context.error(domain.span.clone(), format!("{:?} is not a domain", domain.value)))
        .ok()?;
    let Some(file) = file else {
        context.error(domain.span, "`srs` needs a secret: set `srs_secret_file`");
        return None;
    };
    let path = context.path(file.value);
    let wrong = |why: String| context.error(file.span.clone(), format!("secret file `{}`: {why}", path.display()));
    let text =
        regular(&path).and_then(fs::read_to_string).map_err(|error| wrong(format!("cannot be read: {error}"))).ok()?;
    let secrets: Vec<Vec<u8>> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| line.as_bytes().to_vec()).collect();
    if secrets.is_empty() || secrets.iter().any(|secret| secret.len() < SECRET_BYTES_MIN) {
        wrong(format!("each line must be a secret of at least {SECRET_BYTES_MIN} characters"));
        return None;
    }
    Srs::new(&name, secrets, chars as usize, days)
}

/// Tables by name, in lookup order.
fn named(section: &Section<'_>, key: &'static str, tables: &[TableConfig], kinds: &[Dialect]) -> Vec<TableId> {
    let mut ids = Vec::new();
    for text in section.texts(key).unwrap_or_default() {
        let Some((id, dialect)) = find_table(section.context, tables, text.value, &text.span) else { continue };
        if kinds.contains(&dialect) {
            ids.push(id);
            continue;
        }
        let wanted = match kinds {
            [Dialect::Aliases] => "\"aliases\"",
            [Dialect::Canonical] => "\"canonical\"",
            [Dialect::Generic, ..] => "\"generic\" or \"genericstable\"",
            _ => "\"virtual\" or \"virtusertable\"",
        };
        section.context.error(text.span, format!("table {:?} cannot be used here: it needs as = {wanted}", text.value));
    }
    ids
}
