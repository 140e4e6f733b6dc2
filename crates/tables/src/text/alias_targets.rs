//! Checks the values of an alias file when it is read: included files, malformed values, loops, and aliases with too
//! many targets.
//!
//! Promise: included files are read together with the file, recursively and breadth first, each once per user who
//! names it. Their number, depth, octets and targets are bounded. The owner of an alias file or an included file
//! cannot make the server read files that the owner could not read. All problems are warnings, since the other
//! aliases remain usable.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use stentor_addresses::{ExpansionTarget, FOLLOWED_MAX, parse, parse_include};

use crate::diagnostic::{FileReport, TableProblem};
use crate::keyed::Keyed;
use crate::read::{FileReader, FileRequest, ReadError};
use crate::{INCLUDE_BYTES_MAX, INCLUDED_TARGETS_MAX, INCLUDES_BYTES_MAX};

/// A file included by an alias file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    pub targets: Vec<ExpansionTarget>,
    /// The user on whose behalf further files are included: the file's owner, or for a file of root the user who
    /// named it. `None`: the alias file.
    pub user: Option<u32>,
}

/// Why the targets of an included file are unavailable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncludeError {
    #[error("cannot read {path}: {why}")]
    Unreadable { path: String, why: String },
    #[error("{0}")]
    Malformed(String),
}

impl Included {
    /// Parses the targets in this text.
    ///
    /// # Errors
    /// A line cannot be parsed.
    pub fn of(path: &str, text: &str, user: Option<u32>) -> Result<Included, IncludeError> {
        match parse_include(text) {
            Ok(targets) => Ok(Included { targets, user }),
            Err((line, error)) => Err(IncludeError::Malformed(format!("{path}:{line}: {error}"))),
        }
    }

    fn includes(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().filter_map(included)
    }
}

/// Files included by an alias file, by the user who named them and by path.
pub(crate) type Includes = HashMap<Option<u32>, HashMap<String, Result<Arc<Included>, IncludeError>>>;

/// Maximum nesting of aliases and included files.
const DEPTH_MAX: usize = 50;
/// Maximum included files of one alias file.
const INCLUDES_MAX: usize = 10_000;

/// Local target names of each alias, and its line.
type Names = HashMap<String, (u32, Vec<String>)>;

/// An alias that includes files.
struct Alias {
    line: u32,
    /// Number of its own targets.
    targets: usize,
    includes: Vec<String>,
}

/// Reports problems and returns the included files. `owner`: the user who owns the alias file.
pub(crate) fn check(keyed: &Keyed, owner: u32, read: FileReader<'_>, report: &mut FileReport<'_>) -> Includes {
    let mut entries: Vec<_> = keyed.entries().collect();
    entries.sort_unstable_by_key(|entry| entry.line);
    let (mut aliases, mut names) = (Vec::new(), Names::new());
    for entry in entries {
        let targets = match parse(&String::from_utf8_lossy(entry.value)) {
            Ok(targets) => targets,
            Err(error) => {
                report.add(entry.line, TableProblem::BadAlias(error.to_string()));
                continue;
            }
        };
        let own: Vec<String> = targets.iter().filter_map(name).collect();
        if !own.is_empty() {
            names.insert(String::from_utf8_lossy(entry.key).into_owned(), (entry.line, own));
        }
        let includes: Vec<String> = targets.iter().filter_map(included).map(str::to_owned).collect();
        if !includes.is_empty() {
            aliases.push(Alias { line: entry.line, targets: targets.len(), includes });
        }
    }
    let mut reading = Reading { read, owner, all: Includes::new(), count: 0, bytes: 0, targets: 0, wrong: Vec::new() };
    reading.run(&aliases);
    let Reading { all, mut wrong, .. } = reading;
    too_many(&aliases, &all, &mut wrong);
    wrong.sort_by_key(|(line, _)| *line);
    for (line, problem) in wrong {
        report.add(line, problem);
    }
    loops(&names, report);
    all
}

/// Whether an alias or an included file has a program as a target, or a file other than `/dev/null`.
pub(crate) fn has_programs(keyed: &Keyed, includes: &Includes) -> bool {
    let is_program = |target: &ExpansionTarget| match target {
        ExpansionTarget::Program(_) => true,
        ExpansionTarget::File(path) => path != "/dev/null",
        _ => false,
    };
    let mut values = keyed.entries().map(|entry| parse(&String::from_utf8_lossy(entry.value)));
    let mut files = includes.values().flat_map(HashMap::values).flatten();
    values.any(|targets| targets.is_ok_and(|targets| targets.iter().any(is_program)))
        || files.any(|file| file.targets.iter().any(is_program))
}

/// The name of a target that is looked up among the aliases.
fn name(target: &ExpansionTarget) -> Option<String> {
    match target {
        ExpansionTarget::Address(name) if !name.contains('@') => Some(name.to_lowercase()),
        _ => None,
    }
}

fn included(target: &ExpansionTarget) -> Option<&str> {
    if let ExpansionTarget::Include(path) = target { Some(path) } else { None }
}

/// An included file that is to be read.
struct PendingInclude {
    path: String,
    user: Option<u32>,
    /// Nesting depth of the file.
    depth: usize,
    /// Line of the alias that leads to it.
    line: u32,
}

struct Reading<'r> {
    read: FileReader<'r>,
    owner: u32,
    all: Includes,
    count: usize,
    bytes: usize,
    targets: usize,
    wrong: Vec<(u32, TableProblem)>,
}

impl Reading<'_> {
    fn run(&mut self, aliases: &[Alias]) {
        let named = |alias: &Alias, path: &String| PendingInclude {
            path: path.clone(),
            user: None,
            depth: 0,
            line: alias.line,
        };
        let all = aliases.iter().flat_map(|alias| alias.includes.iter().map(move |path| named(alias, path)));
        let mut ahead: VecDeque<PendingInclude> = all.collect();
        while let Some(next) = ahead.pop_front() {
            if self.all.get(&next.user).is_some_and(|files| files.contains_key(&next.path)) {
                continue;
            }
            if self.count == INCLUDES_MAX {
                let why = format!("more than {INCLUDES_MAX} included files");
                self.wrong.push((next.line, TableProblem::Include { path: next.path, why }));
                return;
            }
            self.count += 1;
            let file = self.file(&next);
            match &file {
                Ok(file) => ahead.extend(file.includes().map(|path| PendingInclude {
                    path: path.to_owned(),
                    user: file.user,
                    depth: next.depth + 1,
                    line: next.line,
                })),
                Err(IncludeError::Unreadable { path, why }) => {
                    self.wrong.push((next.line, TableProblem::Include { path: path.clone(), why: why.clone() }));
                }
                Err(IncludeError::Malformed(why)) => self.wrong.push((next.line, TableProblem::BadAlias(why.clone()))),
            }
            self.all.entry(next.user).or_default().insert(next.path, file.map(Arc::new));
        }
    }

    fn file(&mut self, named: &PendingInclude) -> Result<Included, IncludeError> {
        let unreadable = |why: String| IncludeError::Unreadable { path: named.path.clone(), why };
        if named.depth >= DEPTH_MAX {
            return Err(unreadable(format!("included files nest deeper than {DEPTH_MAX}")));
        }
        let left = INCLUDES_BYTES_MAX - self.bytes;
        let reader = named.user.or((self.owner != 0).then_some(self.owner));
        let request = FileRequest { path: Path::new(&named.path), bytes_max: left.min(INCLUDE_BYTES_MAX), reader };
        let content = (self.read)(request).map_err(|error| {
            unreadable(match error {
                ReadError::Failed(why) => why,
                ReadError::TooLarge if left < INCLUDE_BYTES_MAX => {
                    format!("the included files have more than {INCLUDES_BYTES_MAX} bytes together")
                }
                ReadError::TooLarge => format!("larger than {INCLUDE_BYTES_MAX} bytes"),
            })
        })?;
        self.bytes += content.bytes.len();
        let text = str::from_utf8(&content.bytes).map_err(|_| unreadable("not UTF-8".to_owned()))?;
        let user = if content.owner == 0 { named.user } else { Some(content.owner) };
        let file = Included::of(&named.path, text, user)?;
        if self.targets + file.targets.len() > INCLUDED_TARGETS_MAX {
            return Err(unreadable(format!(
                "the included files have more than {INCLUDED_TARGETS_MAX} targets together"
            )));
        }
        self.targets += file.targets.len();
        Ok(file)
    }
}

/// Reports aliases whose included files have too many targets.
fn too_many(aliases: &[Alias], files: &Includes, wrong: &mut Vec<(u32, TableProblem)>) {
    let mut known: HashMap<&[String], usize> = HashMap::new();
    for alias in aliases {
        let count = *known.entry(&alias.includes).or_insert_with(|| targets_of(&alias.includes, files));
        if alias.targets + count > FOLLOWED_MAX {
            let why = format!("more than {FOLLOWED_MAX} targets, including those of included files");
            wrong.push((alias.line, TableProblem::BadAlias(why)));
        }
    }
}

/// Number of targets in these files and the files that they include, until there are too many.
fn targets_of(paths: &[String], files: &Includes) -> usize {
    let mut ahead: Vec<(Option<u32>, &str)> = paths.iter().map(|path| (None, path.as_str())).collect();
    let (mut seen, mut count) = (HashSet::new(), 0);
    while let Some((user, path)) = ahead.pop() {
        let Some(Ok(file)) = files.get(&user).and_then(|files| files.get(path)) else { continue };
        if count > FOLLOWED_MAX || !seen.insert((user, path)) {
            continue;
        }
        count += file.targets.len();
        ahead.extend(file.includes().map(|path| (file.user, path)));
    }
    count
}

/// Reports names that lead back to themselves through others. A name that is its own target is intentional.
fn loops(names: &Names, report: &mut FileReport<'_>) {
    let mut begins: Vec<(&u32, &String)> = names.iter().map(|(name, (line, _))| (line, name)).collect();
    begins.sort_unstable();
    let mut walk = Loops { names, done: HashSet::new(), path: Vec::new(), found: Vec::new() };
    for (_, name) in begins {
        walk.follow(name);
    }
    for (line, text) in walk.found {
        report.add(line, TableProblem::BadAlias(text));
    }
}

struct Loops<'n> {
    names: &'n Names,
    /// Names that have been followed completely.
    done: HashSet<&'n str>,
    path: Vec<&'n str>,
    found: Vec<(u32, String)>,
}

impl<'n> Loops<'n> {
    fn follow(&mut self, name: &'n str) {
        let Some((line, targets)) = self.names.get(name) else { return };
        if self.done.contains(name) {
            return;
        }
        if self.path.len() >= DEPTH_MAX {
            self.found.push((*line, format!("aliases nest deeper than {DEPTH_MAX} at {name}")));
            return;
        }
        self.path.push(name);
        for target in targets.iter().filter(|target| *target != name) {
            match self.path.iter().position(|step| step == target) {
                Some(begin) => {
                    let way = self.path[begin..].join(" -> ");
                    self.found.push((*line, format!("loop: {way} -> {target}")));
                }
                None => self.follow(target),
            }
        }
        self.path.pop();
        self.done.insert(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileContent, Format, LoadedTable, Reference, load};

    fn roots(text: &str) -> FileContent {
        FileContent { bytes: text.as_bytes().to_vec(), owner: 0 }
    }

    fn aliases() -> Reference {
        Reference::File { format: Format::Aliases, path: "/aliases".into() }
    }

    fn findings_of(loaded: &LoadedTable) -> Vec<String> {
        loaded.report.diagnostics.iter().map(ToString::to_string).collect()
    }

    fn findings(text: &str) -> Vec<String> {
        let mut read = |request: FileRequest<'_>| match request.path.to_str() {
            Some("/aliases") => Ok(roots(text)),
            Some("/staff") => Ok(roots("# all\nann@a.test, :include:/more\n")),
            Some("/more") => Ok(roots(":include:/staff\n<ab\n")),
            _ => Err(ReadError::Failed("no such file".to_owned())),
        };
        let loaded = load(&aliases(), &mut read).unwrap();
        let is_included = text.contains("/staff");
        assert_eq!(matches!(loaded.table.included("/staff", None), Some(Ok(_))), is_included);
        assert_eq!(matches!(loaded.table.included("/more", None), Some(Err(IncludeError::Malformed(_)))), is_included);
        assert_eq!(loaded.table.included("/other", None), None);
        findings_of(&loaded)
    }

    #[test]
    fn included_files_are_read_with_the_file() {
        assert_eq!(
            findings("all: :include:/staff\nsome: :include:/staff, :include:/none\n"),
            [
                "/aliases:1: warning: /more:2: an angle bracket is not closed in \"<ab\"; mail for it is deferred",
                "/aliases:2: warning: /none cannot be read: no such file; mail for it is deferred",
            ]
        );
    }

    #[test]
    fn programs_are_seen_wherever_they_are() {
        let has = |text: &str| {
            let mut read = |request: FileRequest<'_>| match request.path.to_str() {
                Some("/aliases") => Ok(roots(text)),
                Some("/staff") => Ok(roots("ann@a.test, |/bin/x\n")),
                _ => Err(ReadError::Failed("no such file".to_owned())),
            };
            load(&aliases(), &mut read).unwrap().table.has_programs()
        };
        assert!(has("a: b\nc: d, |/bin/x\n") && has("a: /var/mail/x\n") && has("a: :include:/staff\n"));
        assert!(!has("a: b, /dev/null\nc: :include:/none\n"));
    }

    #[test]
    fn loops_and_bad_values_are_found_when_the_file_is_read() {
        assert_eq!(
            findings("a: b\nb: c, x@y.test\nC: a\nself: self, x@y.test\nbad: <ab\nfine: a\n"),
            [
                "/aliases:5: warning: an angle bracket is not closed in \"<ab\"; mail for it is deferred",
                "/aliases:3: warning: loop: a -> b -> c -> a; mail for it is deferred",
            ]
        );
        let deep: Vec<String> = (0..60).map(|n| format!("n{n}: n{}\n", n + 1)).collect();
        assert_eq!(findings(&deep.concat()).len(), 1);
    }

    /// `/N` includes the next number twice and itself.
    #[test]
    fn each_file_is_read_once() {
        let mut reads = 0;
        let mut read = |request: FileRequest<'_>| {
            reads += 1;
            let path = request.path.to_str().unwrap();
            match path.trim_start_matches('/').parse() {
                Ok(45) => Ok(roots("zoe@a.test\n")),
                Ok(n) => Ok(roots(&format!(":include:/{}\n:include:/{0}\n:include:{path}\n", n + 1))),
                Err(_) => Ok(roots("all: :include:/0\n")),
            }
        };
        let loaded = load(&aliases(), &mut read).unwrap();
        assert_eq!((reads, findings_of(&loaded)), (47, Vec::new()));
        assert_eq!(loaded.table.included("/45", None).unwrap().unwrap().targets.len(), 1);
    }

    #[test]
    fn who_names_a_file_is_kept_with_it() {
        let mut readers = Vec::new();
        let owner = std::cell::Cell::new(0);
        let mut read = |request: FileRequest<'_>| {
            let path = request.path.to_str().unwrap();
            readers.push(format!("{path} {:?}", request.reader));
            let (text, owner) = match path {
                "/aliases" => ("all: :include:/joes, :include:/roots\n", owner.get()),
                "/joes" => (":include:/roots\n:include:/anns\n", 7),
                "/roots" => (":include:/anns\n", 0),
                _ => ("x@a.test\n", 8),
            };
            Ok(FileContent { bytes: text.as_bytes().to_vec(), owner })
        };
        let loaded = load(&aliases(), &mut read).unwrap();
        let user = |path, user| loaded.table.included(path, user).map(|file| file.unwrap().user);
        assert_eq!(
            (user("/joes", None), user("/roots", None), user("/roots", Some(7))),
            (Some(Some(7)), Some(None), Some(Some(7)))
        );
        assert_eq!((user("/anns", None), user("/anns", Some(8))), (Some(Some(8)), None));
        owner.set(9);
        load(&aliases(), &mut read).unwrap();
        let expected = ["None", "None", "None", "Some(7)", "Some(7)", "None"];
        let paths = ["/aliases", "/joes", "/roots", "/roots", "/anns", "/anns"];
        let shown: Vec<String> = paths.iter().zip(expected).map(|(path, reader)| format!("{path} {reader}")).collect();
        assert_eq!(readers[..6], shown);
        assert_eq!(readers[6..9], ["/aliases None", "/joes Some(9)", "/roots Some(9)"]);
    }

    #[test]
    fn limits_are_told() {
        let large = "#".repeat(INCLUDE_BYTES_MAX);
        let many = "a@a.test\n".repeat(stentor_addresses::TARGETS_MAX);
        let mut read = |request: FileRequest<'_>| {
            let text = match request.path.to_str().unwrap() {
                "/aliases" => {
                    "a: :include:/many1, :include:/many2, b\nb: :include:/deep0\nc: :include:/large0, :include:/large1, \
                               :include:/large2, :include:/large3\nd: :include:/huge\n"
                }
                "/huge" => return Err(ReadError::TooLarge),
                path if path.starts_with("/many") => many.as_str(),
                path if path.starts_with("/large") => large.as_str(),
                path => {
                    let n: usize = path.trim_start_matches("/deep").parse().unwrap();
                    return Ok(roots(&format!(":include:/deep{}\n", n + 1)));
                }
            };
            if text.len() > request.bytes_max { Err(ReadError::TooLarge) } else { Ok(roots(text)) }
        };
        let loaded = load(&aliases(), &mut read).unwrap();
        assert_eq!(
            findings_of(&loaded),
            [
                "/aliases:1: warning: more than 20000 targets, including those of included files; mail for it is deferred",
                "/aliases:2: warning: /deep50 cannot be read: included files nest deeper than 50; mail for it is deferred",
                "/aliases:3: warning: /large3 cannot be read: the included files have more than 67108864 bytes together; \
                 mail for it is deferred",
                "/aliases:4: warning: /huge cannot be read: the included files have more than 67108864 bytes together; \
                 mail for it is deferred",
            ]
        );
    }
}
