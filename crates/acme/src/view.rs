//! How it stands with certificates, for people: what the files say.

use stentor_tls::Certificate;

use crate::record::{Record, Shelf, held};
use crate::schedule;

/// One certificate as it stands, for people.
#[derive(Clone, Debug)]
pub struct View {
    pub names: Vec<String>,
    pub certificate: Option<Certificate>,
    pub record: Record,
    /// When it is tried to obtain one; 0: now.
    pub due_s: i64,
}

/// What the files say. Blocks.
pub fn views(shelf: &dyn Shelf, sets: &[Vec<String>], directory: &str, now: i64) -> Vec<View> {
    let view = |names: &Vec<String>| {
        let record = schedule::believed(Record::read(shelf, names), now);
        let certificate = held(shelf, names).map(|identity| identity.certificate);
        let due_s = schedule::due(&record, certificate.as_ref(), names, directory);
        View { names: names.clone(), certificate, record, due_s }
    };
    sets.iter().map(view).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::Memory;

    #[test]
    fn without_files_everything_is_due() {
        let shelf = Memory::default();
        let sets = [vec!["mx.example.org".to_owned()]];
        let views = views(&shelf, &sets, "https://ca/", 0);
        assert!(views[0].certificate.is_none() && views[0].due_s == 0, "{views:?}");
        shelf.replace("mx.example.org.pem", b"damaged").unwrap();
        assert!(held(&shelf, &sets[0]).is_none());
    }
}
