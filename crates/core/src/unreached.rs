//! Recipients waiting for a site or domain that was not reached, for the record of that failure.

use stentor_records::record;

/// Owned form of [`record::Unreached`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnreachedRcpts {
    pub site: String,
    pub waiting: u64,
    pub domains: Vec<(String, u64)>,
}

impl UnreachedRcpts {
    pub fn as_record(&self) -> Box<record::Unreached<'_>> {
        let domains = self.domains.iter().map(|(domain, waiting)| (domain.as_str(), *waiting)).collect();
        Box::new(record::Unreached { site: &self.site, waiting: self.waiting, domains })
    }
}
