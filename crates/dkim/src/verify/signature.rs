//! Signature fields: `DKIM-Signature` (RFC 6376 section 3.5), `ARC-Message-Signature` and `ARC-Seal` (RFC 8617 section
//! 4.1).

use base64ct::{Base64, Encoding};
use stentor_mail::domain::is_at_or_below;
use stentor_mime::field;

use super::tags::TagList;
use crate::fields::NAMES_MAX;
use crate::form::CanonicalForm;
use crate::key::Algorithm;

/// Longest domain and selector.
const DOMAIN_BYTES_MAX: usize = 253;

/// Kind of a signature field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureKind {
    Dkim,
    /// Signs a message like DKIM; `i=` is its instance.
    ArcMessage,
    /// Signs the ARC fields only.
    ArcSeal,
}

/// Why a signature field cannot be verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("malformed tag list")]
    Tags,
    #[error("unknown version")]
    Version,
    #[error("missing or malformed tag {0}=")]
    Tag(&'static str),
    #[error("algorithm not supported")]
    Algorithm,
    #[error("From is not signed")]
    FromUnsigned,
    #[error("i= is not in the domain of d=")]
    Identity,
    #[error("expires before it was made")]
    Times,
}

/// A parsed signature field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub algorithm: Algorithm,
    /// In lower case.
    pub domain: String,
    pub selector: String,
    /// Domain of `i=`, in lower case, if there is one.
    pub identity_domain: Option<String>,
    /// Instance of an ARC field.
    pub instance: Option<u32>,
    pub header_form: CanonicalForm,
    pub body_form: CanonicalForm,
    /// Octets of the canonical body that are signed; `None`: all.
    pub body_bytes: Option<u64>,
    pub expires_s: Option<u64>,
    /// The value of `b=` as text.
    pub text: String,
    /// Names of `h=` in lower case.
    pub(crate) names: Vec<String>,
    pub(crate) body_hash: Vec<u8>,
    pub(crate) octets: Vec<u8>,
    /// The field as received.
    pub(crate) whole: Vec<u8>,
}

impl Signature {
    /// Names of the signed header fields (`h=`), in lower case.
    pub fn fields(&self) -> &[String] {
        &self.names
    }

    /// Parses a field with its name.
    ///
    /// # Errors
    /// It cannot be verified.
    pub fn parse(kind: SignatureKind, whole: &[u8]) -> Result<Signature, SignatureError> {
        let (_, value) = field::split(whole).ok_or(SignatureError::Tags)?;
        let tags = TagList::parse(value).map_err(|_| SignatureError::Tags)?;
        let is_seal = kind == SignatureKind::ArcSeal;
        match (kind, tags.value("v")) {
            (SignatureKind::Dkim, Some("1")) | (SignatureKind::ArcMessage | SignatureKind::ArcSeal, None) => {}
            _ => return Err(SignatureError::Version),
        }
        let algorithm = match tags.value("a") {
            Some("rsa-sha256") => Algorithm::RsaSha256,
            Some("ed25519-sha256") => Algorithm::Ed25519Sha256,
            // rsa-sha1 must not be verified (RFC 8301 section 3.1).
            Some(_) => return Err(SignatureError::Algorithm),
            None => return Err(SignatureError::Tag("a")),
        };
        let domain = name(&tags, "d")?;
        let selector = name(&tags, "s")?;
        let text = tags.compact("b").filter(|text| !text.is_empty()).ok_or(SignatureError::Tag("b"))?;
        let octets = Base64::decode_vec(&text).map_err(|_| SignatureError::Tag("b"))?;
        let (header_form, body_form) = if is_seal { SEAL_FORMS } else { forms(&tags)? };
        let mut signature = Signature {
            algorithm,
            domain,
            selector,
            identity_domain: None,
            instance: None,
            header_form,
            body_form,
            body_bytes: None,
            expires_s: number(&tags, "x")?,
            text,
            names: Vec::new(),
            body_hash: Vec::new(),
            octets,
            whole: whole.to_vec(),
        };
        if is_seal {
            if tags.value("h").is_some() || tags.value("bh").is_some() {
                return Err(SignatureError::Tag("h"));
            }
        } else {
            signature.read_message_tags(&tags)?;
        }
        if kind == SignatureKind::Dkim {
            signature.identity_domain = identity_domain(&tags, &signature.domain)?;
        } else {
            let instance = tags.value("i").and_then(|text| text.parse().ok()).filter(|instance| *instance > 0);
            signature.instance = Some(instance.ok_or(SignatureError::Tag("i"))?);
        }
        let signed_s = number(&tags, "t")?;
        if signed_s.zip(signature.expires_s).is_some_and(|(signed, expires)| expires <= signed) {
            return Err(SignatureError::Times);
        }
        Ok(signature)
    }

    /// Returns the field as received.
    pub fn whole(&self) -> &[u8] {
        &self.whole
    }

    /// Reads the tags of signatures that cover a message.
    fn read_message_tags(&mut self, tags: &TagList) -> Result<(), SignatureError> {
        let names = tags.compact("h").ok_or(SignatureError::Tag("h"))?.to_ascii_lowercase();
        let names: Vec<String> = names.split(':').map(str::to_owned).collect();
        if names.len() > NAMES_MAX || names.iter().any(String::is_empty) {
            return Err(SignatureError::Tag("h"));
        }
        if !names.iter().any(|name| name == "from") {
            return Err(SignatureError::FromUnsigned);
        }
        self.names = names;
        let body_hash = tags.compact("bh").ok_or(SignatureError::Tag("bh"))?;
        self.body_hash = Base64::decode_vec(&body_hash).map_err(|_| SignatureError::Tag("bh"))?;
        self.body_bytes = number(tags, "l")?;
        let is_known = |query: &str| query.split(':').any(|one| one.trim() == "dns/txt");
        if tags.value("q").is_some_and(|query| !is_known(query)) {
            return Err(SignatureError::Tag("q"));
        }
        Ok(())
    }
}

/// Forms of an ARC-Seal, which has no `c=` (RFC 8617 section 4.1.3).
const SEAL_FORMS: (CanonicalForm, CanonicalForm) = (CanonicalForm::Relaxed, CanonicalForm::Relaxed);

/// The forms of header and body in `c=`.
fn forms(tags: &TagList) -> Result<(CanonicalForm, CanonicalForm), SignatureError> {
    let Some(text) = tags.value("c") else { return Ok((CanonicalForm::Simple, CanonicalForm::Simple)) };
    let (header, body) = text.split_once('/').unwrap_or((text, "simple"));
    let form = |word: &str| CanonicalForm::parse(word.trim()).ok_or(SignatureError::Tag("c"));
    Ok((form(header)?, form(body)?))
}

/// A domain or selector: names in the DNS.
fn name(tags: &TagList, tag: &'static str) -> Result<String, SignatureError> {
    let is_octet = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
    let is_name = |name: &String| {
        (1..=DOMAIN_BYTES_MAX).contains(&name.len())
            && name.bytes().all(is_octet)
            && name.split('.').all(|label| (1..=63).contains(&label.len()))
    };
    let name = tags.value(tag).map(str::to_ascii_lowercase);
    name.filter(is_name).ok_or(SignatureError::Tag(tag))
}

fn number(tags: &TagList, tag: &'static str) -> Result<Option<u64>, SignatureError> {
    let Some(text) = tags.value(tag) else { return Ok(None) };
    // Numbers may have 76 digits (RFC 6376 section 3.5): a larger one is the largest.
    let is_number = !text.is_empty() && text.len() <= 76 && text.bytes().all(|octet| octet.is_ascii_digit());
    if !is_number {
        return Err(SignatureError::Tag(tag));
    }
    Ok(Some(text.parse().unwrap_or(u64::MAX)))
}

/// The domain of `i=`, which must be that of `d=` or below it.
fn identity_domain(tags: &TagList, domain: &str) -> Result<Option<String>, SignatureError> {
    let Some(identity) = tags.compact("i") else { return Ok(None) };
    let (_, of) = identity.rsplit_once('@').ok_or(SignatureError::Identity)?;
    let of = of.to_ascii_lowercase();
    if is_at_or_below(&of, domain) { Ok(Some(of)) } else { Err(SignatureError::Identity) }
}
