//! Shared parts of golden cases: their format, and in-memory tables of a configuration.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use stentor_config::{Config, TableSource};
use stentor_rules::{Field, LookupBuffers, LookupResult, Subject, TableId, Tables, find};
use stentor_tables::{IncludeError, Included, Table};

const HEAD: &str = "hostname = \"mx.local.test\"\nclient_networks = [\"10.0.0.0/8\"]\n";
/// An include file.
const STAFF: &str = "# who works here\nann@a.test, bob@b.test\n\ncarl\n";

/// Tables of a configuration; those behind sockets do not answer.
pub struct InMemory<'c>(pub &'c Config);

impl Tables for InMemory<'_> {
    fn ask(&self, table: TableId, field: Field, subject: Subject<'_>) -> LookupResult {
        let table = &self.0.tables[usize::from(table.0)];
        let TableSource::Inline(entries) = &table.source else {
            return LookupResult::Unavailable("nobody listens".to_owned());
        };
        let made = Table::inline(entries.iter().map(|entry| (entry.key.as_bytes(), entry.value.as_bytes())));
        let (dialect, asking) = (table.dialect, &mut LookupBuffers::default());
        find(TableId(0), &made, dialect, field, subject, asking, |_| String::new())
    }

    fn include(&self, _: TableId, path: &str, user: Option<u32>) -> Option<Result<Arc<Included>, IncludeError>> {
        let text = match path {
            "/staff" => STAFF.to_owned(),
            "/programs" => "|/bin/x\n".to_owned(),
            "/chain/45" => "zoe@a.test\n".to_owned(),
            "/twice/1" | "/twice/2" | "/twice/3" => "zoe@a.test\n".repeat(7_000),
            _ => {
                let Some((folder, Ok(n))) = path.rsplit_once('/').map(|(folder, name)| (folder, name.parse::<u32>()))
                else {
                    let why = "no such file".to_owned();
                    return Some(Err(IncludeError::Unreadable { path: path.to_owned(), why }));
                };
                // Each includes the next one twice, and itself.
                let next = format!(":include:{folder}/{}\n", n + 1);
                format!("{next}{next}:include:{path}\n")
            }
        };
        Some(Included::of(path, &text, user).map(Arc::new))
    }
}

/// Runs the cases of a file. Each group has a configuration, `--`, and lines `CASE => EXPECTED`.
pub fn golden(file: &str, cases_min: usize, run: fn(&Config, &str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let golden = std::fs::read_to_string(folder.join(file)).unwrap();
    let (mut cases, mut wrong) = (0, String::new());
    for world in golden.split("\n== ").skip(1) {
        let (name, rest) = world.split_once('\n').unwrap();
        let (config, lines) = rest.split_once("\n--\n").unwrap_or_else(|| ("", rest.trim_start_matches("--\n")));
        let config = match stentor_config::check_text(&folder.join("golden.toml"), &format!("{HEAD}{config}\n")) {
            Ok(config) => config,
            Err(errors) => panic!("{name}: {errors:?}"),
        };
        for line in lines.lines().filter(|line| !line.is_empty()) {
            let (case, expected) = line.split_once(" => ").unwrap_or_else(|| panic!("{name}: {line}"));
            let got = run(&config, case);
            cases += 1;
            if got != expected {
                writeln!(wrong, "{name}\n    {case}\n    expected {expected}\n    got      {got}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(cases >= cases_min, "{cases}");
}
