//! The name of a client in the DNS.

/// A client's DNS name, verified in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientName<T> {
    /// Name in lower case.
    Is(T),
    /// There is no name that leads back to the address.
    Nameless,
    #[default]
    Unknown,
}

impl<T> ClientName<T> {
    pub fn is(self) -> Option<T> {
        match self {
            ClientName::Is(name) => Some(name),
            ClientName::Nameless | ClientName::Unknown => None,
        }
    }
}

impl ClientName<&str> {
    pub fn into_owned(self) -> ClientName<Box<str>> {
        match self {
            ClientName::Is(name) => ClientName::Is(name.into()),
            ClientName::Nameless => ClientName::Nameless,
            ClientName::Unknown => ClientName::Unknown,
        }
    }
}

impl<T: std::ops::Deref<Target = str>> ClientName<T> {
    pub fn as_deref(&self) -> ClientName<&str> {
        match self {
            ClientName::Is(name) => ClientName::Is(name),
            ClientName::Nameless => ClientName::Nameless,
            ClientName::Unknown => ClientName::Unknown,
        }
    }
}

/// Converts the result of a completed DNS lookup.
impl<T> From<Option<T>> for ClientName<T> {
    fn from(found: Option<T>) -> ClientName<T> {
        found.map_or(ClientName::Nameless, ClientName::Is)
    }
}
