//! Programs and files in alias files: finds the target of a recipient `NAME=TAG@domain`, and the user of its
//! delivery.
//!
//! Promise: only targets in an alias file are run or written to, whoever the client is: it names an alias and the tag
//! of one of its targets ([`stentor_addresses::tag`]), and the files are read here. A file is not used if anyone
//! except root and its owner can change it, or if it belongs to the client's user. Targets in root's files are
//! delivered as the service's user, those in any other file as its owner. Owners of included files must have a login
//! shell (/etc/shells), so that users who may not start programs cannot do so in this way. Files included by a user's
//! file must belong to root or this user, and are read with this user's rights.
//!
//! A target whose text has changed since the mail arrived is not found by its tag. If the alias then has exactly one
//! program or file, directly in a file of root's, that one gets the mail; otherwise the mail waits.
//!
//! Included files are only opened for a target that is not in the alias file itself, breadth first, each once per
//! user who names it. A broken one is skipped, so that its author only affects its own targets. Number, nesting and
//! size of files are bounded, and the caller can end the search, so that files cannot keep a worker busy.
//!
//! Failure: all errors defer. The mail is kept until somebody corrects the file.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use stentor_addresses::{ExpansionTarget, parse, parse_include, tag};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_tables::candidates::{Candidates, Options, Owner};
use stentor_tables::{INCLUDE_BYTES_MAX, INCLUDES_BYTES_MAX, all_aliases, find_alias};

use crate::account::PasswdEntry;
use crate::config::{AliasSettings, Program, allowed, executable};
use crate::guarded;
use crate::lock_name::is_lock_name;
use crate::log;
use crate::recipient::LocalRecipient;
use crate::template::Template;

const SHELLS: &str = "/etc/shells";
/// Maximum size of an alias file.
const FILE_BYTES_MAX: usize = 256 << 20;
/// Maximum nesting of included files.
const DEPTH_MAX: usize = 50;
/// Maximum included files of one alias.
const INCLUDES_MAX: usize = 10_000;
/// Maximum programs listed by `--check`.
const MISSING_MAX: usize = 20;
const NULL: &str = "/dev/null";
/// Characters that require a shell if they are unquoted.
const FOR_A_SHELL: &str = "$`;|&<>()*?[]{}~#\n";

/// A target that was found.
#[derive(Debug)]
pub struct AliasTarget {
    pub account: PasswdEntry,
    /// Whether only root's files lead to it.
    pub is_named_by_root: bool,
    pub what: AliasDelivery,
}

#[derive(Debug)]
pub enum AliasDelivery {
    Program(Box<Program>),
    Maildir(PathBuf),
    Mbox(PathBuf),
}

/// A program or file, and the user who named it.
struct Candidate {
    text: ExpansionTarget,
    is_included: bool,
    by: NamingUser,
}

/// The user whose files lead to targets.
#[derive(Clone)]
struct NamingUser {
    /// Account whose rights the deliveries have.
    account: PasswdEntry,
    is_root: bool,
}

/// Finds the target of a recipient. `is_over`: returns true when the search should stop.
pub fn find(
    aliases: &AliasSettings,
    recipient: &LocalRecipient,
    is_over: &dyn Fn() -> bool,
) -> Result<AliasTarget, Reply> {
    let named = aliases.files.iter().find_map(|file| named(aliases, file, recipient).transpose());
    let named = named.unwrap_or_else(|| Err("not found in this service's alias files".to_owned()));
    let found = named.and_then(|(targets, by)| Search::new(aliases, &recipient.tag, is_over).run(targets, &by));
    let Candidate { text, by, .. } = found.map_err(|why| later(recipient, &why))?;
    let what = match text {
        ExpansionTarget::Program(command) => {
            let arguments = arguments(&command, aliases.shell, aliases.programs.as_deref());
            let arguments = arguments.map_err(|why| later(recipient, &why))?;
            AliasDelivery::Program(Box::new(Program { arguments, ..aliases.program.clone() }))
        }
        ExpansionTarget::File(path) if path.ends_with('/') => AliasDelivery::Maildir(path.into()),
        ExpansionTarget::File(path) if is_lock_name(Path::new(&path)) => {
            return Err(later(recipient, &format!("{path} is the name of a lock file, not of a mailbox")));
        }
        ExpansionTarget::File(path) => AliasDelivery::Mbox(path.into()),
        ExpansionTarget::Address(_)
        | ExpansionTarget::Final(_)
        | ExpansionTarget::Domain(_)
        | ExpansionTarget::Include(_) => {
            return Err(later(recipient, "it is not a program or a file"));
        }
    };
    Ok(AliasTarget { account: by.account, is_named_by_root: by.is_root, what })
}

/// Checks the alias files themselves.
pub fn check(aliases: &AliasSettings) -> Result<(), String> {
    let wrong = |file: &PathBuf| trusted(aliases, file, None, FILE_BYTES_MAX).err();
    aliases.files.iter().find_map(wrong).map_or(Ok(()), Err)
}

/// Programs in the alias files that cannot be run, with their places: the first [`MISSING_MAX`], and the number of
/// others.
pub fn missing(aliases: &AliasSettings) -> (Vec<String>, usize) {
    let (mut shown, mut more) = (Vec::new(), 0);
    for file in &aliases.files {
        // Problems of the file itself are errors.
        let Ok((content, _)) = trusted(aliases, file, None, FILE_BYTES_MAX) else { continue };
        all_aliases(&content, |name, value, line| {
            let targets = str::from_utf8(value).ok().and_then(|value| parse(value).ok()).unwrap_or_default();
            for target in targets {
                let ExpansionTarget::Program(command) = target else { continue };
                let Err(why) = can_run(&command, aliases) else { continue };
                if shown.len() < MISSING_MAX {
                    shown.push(format!("{}:{line}: {}: {why}", file.display(), String::from_utf8_lossy(name)));
                } else {
                    more += 1;
                }
            }
        });
    }
    (shown, more)
}

fn can_run(command: &str, aliases: &AliasSettings) -> Result<(), String> {
    if aliases.shell {
        // A command that requires a shell cannot be checked without one.
        let program = words(command).and_then(|words| words.into_iter().next()).filter(|word| word.starts_with('/'));
        return program.map_or(Ok(()), |program| executable(Path::new(&program)));
    }
    let program = arguments(command, false, aliases.programs.as_deref())?.swap_remove(0);
    program.fixed().map_or(Ok(()), |program| executable(Path::new(&program)))
}

fn later(recipient: &LocalRecipient, why: &str) -> Reply {
    let text = format!("Alias {}: {why}", recipient.user);
    log::error(&text);
    Reply::new(451, Enhanced::new(4, 3, 5), text)
}

/// Reads a file's text and owner; `reader` is the user who named it, `None` means root.
fn trusted(
    aliases: &AliasSettings,
    path: &Path,
    reader: Option<&PasswdEntry>,
    bytes_max: usize,
) -> Result<(Vec<u8>, PasswdEntry), String> {
    let (content, owner) = guarded::read(path, reader, bytes_max).map_err(|error| error.to_string())?;
    if owner.uid == aliases.client && owner.uid != 0 {
        // An attacker who controls the server could write to it.
        return Err(format!("{}: belongs to {}, the server's user", path.display(), owner.name));
    }
    Ok((content, owner))
}

/// Targets of the recipient in an alias file, and the user who named them.
fn named(
    aliases: &AliasSettings,
    file: &Path,
    recipient: &LocalRecipient,
) -> Result<Option<(Vec<ExpansionTarget>, NamingUser)>, String> {
    let (content, owner) = trusted(aliases, file, None, FILE_BYTES_MAX)?;
    let mut names = Candidates::default();
    let delimiter = recipient.delimiter.map(|delimiter| delimiter.to_string()).unwrap_or_default();
    let options = Options { delimiters: delimiter.as_bytes(), ..Options::default() };
    names.set(Owner::Aliases, recipient.address.as_bytes(), &options);
    let keys: Vec<&[u8]> = names.iter().map(|name| name.key).collect();
    let Some((_, value)) = find_alias(&content, &keys) else { return Ok(None) };
    let wrong = |why: String| format!("{}: {why}", file.display());
    let targets = String::from_utf8(value).map_err(|_| wrong("not UTF-8".to_owned()))?;
    let targets = parse(&targets).map_err(|error| wrong(error.to_string()))?;
    let is_root = owner.uid == 0;
    Ok(Some((targets, NamingUser { account: if is_root { aliases.account.clone() } else { owner }, is_root })))
}

/// A file to be opened.
struct Include {
    path: String,
    by: NamingUser,
    /// Nesting depth of the file.
    depth: usize,
}

/// The search for the target with a tag.
struct Search<'a> {
    aliases: &'a AliasSettings,
    tag: &'a str,
    is_over: &'a dyn Fn() -> bool,
    /// The first program or file, with its tag; and whether there are others.
    first: Option<(String, Candidate)>,
    has_others: bool,
    ahead: VecDeque<Include>,
    /// All entries that were ever in `ahead`, with the users who named them.
    named: HashSet<(String, u32, bool)>,
    /// Number of octets read.
    read: usize,
    /// Problem of the first broken included file.
    wrong: Option<String>,
}

impl<'a> Search<'a> {
    fn new(aliases: &'a AliasSettings, tag: &'a str, is_over: &'a dyn Fn() -> bool) -> Search<'a> {
        Search {
            aliases,
            tag,
            is_over,
            first: None,
            has_others: false,
            ahead: VecDeque::new(),
            named: HashSet::new(),
            read: 0,
            wrong: None,
        }
    }

    /// The target with the tag, or else the only one.
    fn run(mut self, targets: Vec<ExpansionTarget>, by: &NamingUser) -> Result<Candidate, String> {
        if let Some(found) = self.among(targets, by, None) {
            return Ok(found);
        }
        while let Some(file) = self.ahead.pop_front() {
            if (self.is_over)() {
                return Err("reading its included files timed out".to_owned());
            }
            match self.include(&file) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(why) => self.is_wrong(why),
            }
        }
        match (self.wrong, self.first) {
            (Some(why), _) => Err(why),
            // The author of an included file determines its targets, but not which mail they get.
            (None, Some((_, only))) if !self.has_others && only.by.is_root && !only.is_included => Ok(only),
            _ => Err("its program or file was changed or removed".to_owned()),
        }
    }

    /// Searches the targets of one file for the tag.
    fn among(&mut self, targets: Vec<ExpansionTarget>, by: &NamingUser, file: Option<&Include>) -> Option<Candidate> {
        let (path, depth) = (file.map(|file| file.path.as_str()), file.map_or(0, |file| file.depth + 1));
        for target in targets {
            if let ExpansionTarget::Include(path) = target {
                self.name(path, by, depth);
                continue;
            }
            let Some(tag) = tag(&target, path).filter(|_| target != ExpansionTarget::File(NULL.to_owned())) else {
                continue;
            };
            let candidate = || Candidate { text: target, is_included: path.is_some(), by: by.clone() };
            match &self.first {
                _ if tag == self.tag => return Some(candidate()),
                Some((first, _)) => self.has_others |= *first != tag,
                None => self.first = Some((tag, candidate())),
            }
        }
        None
    }

    fn name(&mut self, path: String, by: &NamingUser, depth: usize) {
        if self.named.contains(&(path.clone(), by.account.uid, by.is_root)) {
            return;
        }
        if depth >= DEPTH_MAX {
            return self.is_wrong(format!("{path}: included files are nested more than {DEPTH_MAX} deep"));
        }
        if self.named.len() == INCLUDES_MAX {
            return self.is_wrong(format!("more than {INCLUDES_MAX} included files"));
        }
        self.named.insert((path.clone(), by.account.uid, by.is_root));
        self.ahead.push_back(Include { path, by: by.clone(), depth });
    }

    fn include(&mut self, file: &Include) -> Result<Option<Candidate>, String> {
        let (path, by) = (&file.path, &file.by);
        let bytes_max = INCLUDE_BYTES_MAX.min(INCLUDES_BYTES_MAX - self.read);
        let reader = (!by.is_root).then_some(&by.account);
        let (content, owner) = trusted(self.aliases, Path::new(path), reader, bytes_max)?;
        self.read += content.len();
        let text = str::from_utf8(&content).map_err(|_| format!("{path}: not UTF-8"))?;
        let targets = parse_include(text).map_err(|(line, error)| format!("{path}:{line}: {error}"))?;
        if owner.uid == 0 {
            return Ok(self.among(targets, by, Some(file)));
        }
        let is_plain = |target: &ExpansionTarget| {
            !matches!(target, ExpansionTarget::Program(_) | ExpansionTarget::File(_) | ExpansionTarget::Include(_))
        };
        if !targets.iter().all(is_plain) && !owner.has_shell(&fs::read_to_string(SHELLS).unwrap_or_default()) {
            return Err(format!("{path}: its owner, {}, has no login shell listed in {SHELLS}", owner.name));
        }
        Ok(self.among(targets, &NamingUser { account: owner, is_root: false }, Some(file)))
    }

    fn is_wrong(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }
}

/// The command as it is started.
fn arguments(command: &str, shell: bool, programs: Option<&Path>) -> Result<Vec<Template>, String> {
    let words = if shell { Some(["/bin/sh", "-c", command].map(str::to_owned).to_vec()) } else { words(command) };
    let mut words = words.ok_or_else(|| format!("{command:?} needs a shell; set `shell = true`"))?;
    match (words.first_mut(), programs) {
        (None, _) => return Err(format!("{command:?} does not name a program")),
        (Some(program), Some(folder)) => *program = allowed(folder, program)?,
        (Some(program), None) if !program.starts_with('/') => {
            return Err(format!("`{program}` is not an absolute path"));
        }
        (Some(_), None) => {}
    }
    Ok(words.iter().map(|word| Template::plain(word)).collect())
}

/// The words of a command that needs no shell, separated by blanks, with quotes as in a shell.
fn words(command: &str) -> Option<Vec<String>> {
    let (mut quote, mut is_escaped) = (None, false);
    for letter in command.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if quote != Some('\'') => is_escaped = true,
            '\'' | '"' if quote == Some(letter) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(letter),
            '$' | '`' if quote == Some('"') => return None,
            letter if quote.is_none() && FOR_A_SHELL.contains(letter) => return None,
            _ => {}
        }
    }
    shlex::split(command)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;
    use crate::config::{Agent, Config};

    /// A service with these alias files.
    fn aliases_of(files: &[&Path]) -> AliasSettings {
        let files: Vec<String> = files.iter().map(|file| format!("{:?}", file.display().to_string())).collect();
        let text = format!("client = \"root\"\n[services.x]\nkind = \"aliases\"\nfiles = [{}]\n", files.join(", "));
        let mut config = Config::parse(Path::new("deliver.toml"), &text).unwrap();
        let Agent::Aliases(aliases) = config.services.remove("x").unwrap().agent else {
            panic!("a service of aliases")
        };
        aliases
    }

    fn split(command: &str) -> Option<Vec<String>> {
        words(command)
    }

    #[test]
    fn words_are_divided_without_a_shell() {
        let all = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(split("/bin/x -a b=c  d"), all(&["/bin/x", "-a", "b=c", "d"]));
        assert_eq!(split("/bin/x 'a b;$c' \"d 'e'\" f\\ g"), all(&["/bin/x", "a b;$c", "d 'e'", "f g"]));
        for shell in ["a; b", "a | b", "a > b", "a $b", "a \"$b\"", "a `b`", "a #b", "a *", "~/x", "a && b", "a 'b"] {
            assert_eq!(split(shell), None, "{shell}");
        }
    }

    #[test]
    fn a_command_is_an_absolute_path_or_one_of_the_folder() {
        let plain = |command: &str, shell, programs| {
            let words = arguments(command, shell, programs)?;
            Ok::<_, String>(words.iter().map(|word| word.fixed().unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(
            plain("/bin/x ${user}", false, None),
            Err("\"/bin/x ${user}\" needs a shell; set `shell = true`".into())
        );
        assert_eq!(plain("/bin/x '${user}'", false, None).unwrap(), ["/bin/x", "${user}"]);
        assert_eq!(plain("x; y", true, None).unwrap(), ["/bin/sh", "-c", "x; y"]);
        assert!(plain("x", false, None).is_err() && plain("", false, None).is_err());
        let folder = tempfile::tempdir().unwrap();
        symlink("/bin/true", folder.path().join("true")).unwrap();
        let path = folder.path().join("true").display().to_string();
        assert_eq!(plain("/usr/bin/true a", false, Some(folder.path())).unwrap(), [path.as_str(), "a"]);
        assert!(plain("/bin/sh -c x", false, Some(folder.path())).is_err());
    }

    fn recipient(name: &str, target: &str, included: Option<&str>) -> LocalRecipient {
        let tag = tag(&parse(target).unwrap()[0], included).unwrap();
        let address = format!("{name}={tag}@x.test").parse().unwrap();
        LocalRecipient::of_alias(&address, None, Some('+')).unwrap()
    }

    fn found(aliases: &AliasSettings, name: &str, target: &str, included: Option<&str>) -> Result<String, String> {
        let found = find(aliases, &recipient(name, target, included), &|| false).map_err(|reply| reply.to_string())?;
        let what = match found.what {
            AliasDelivery::Program(program) => {
                program.arguments.iter().map(|word| word.fixed().unwrap()).collect::<Vec<_>>().join(" ")
            }
            AliasDelivery::Maildir(path) => format!("maildir {}", path.display()),
            AliasDelivery::Mbox(path) => format!("mbox {}", path.display()),
        };
        Ok(format!("{} as {}", what, found.account.name))
    }

    #[test]
    fn a_target_is_found_by_its_tag() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("aliases");
        let write = |text: &str| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        };
        write("News: ann, \"|/bin/news -a\", /var/mail/news\nbox: /var/mail/box/, /dev/null\nboth: x\n");
        let aliases = aliases_of(&[&file]);
        let user = &aliases.account.name;
        assert_eq!(found(&aliases, "news", "|/bin/news -a", None), Ok(format!("/bin/news -a as {user}")));
        assert_eq!(found(&aliases, "NEWS+x", "/var/mail/news", None), Ok(format!("mbox /var/mail/news as {user}")));
        assert_eq!(found(&aliases, "box", "/var/mail/box/", None), Ok(format!("maildir /var/mail/box/ as {user}")));
        let changed = "451 4.3.5 Alias news: its program or file was changed or removed";
        assert_eq!(found(&aliases, "news", "|/bin/sh -c id", None).unwrap_err(), changed);
        assert_eq!(found(&aliases, "news", "|/bin/news -a", Some("/etc/list")).unwrap_err(), changed);
        assert!(found(&aliases, "both", "|/bin/x", None).unwrap_err().contains("changed or removed"));
        assert!(found(&aliases, "none", "|/bin/x", None).unwrap_err().contains("not found in"));
        // The text of the only target has changed.
        if rustix::process::geteuid().is_root() {
            assert_eq!(found(&aliases, "box", "/var/mail/bax/", None), Ok(format!("maildir /var/mail/box/ as {user}")));
        }
        fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(found(&aliases, "news", "|/bin/news -a", None).unwrap_err().contains("others can write to it"));
        assert!(check(&aliases).unwrap_err().contains("others can write to it"));
    }

    #[test]
    fn programs_that_cannot_be_run_are_named() {
        let text = "good: |/bin/true -a, ann\ngone: |/nowhere/x\nfolder: \"|/bin\"\nplain: |$DIR/aliases\nodd: |a; b\nname: |x\n";
        let (folder, mut aliases) = files(&[("aliases", text)]);
        let place = |line: u32, name: &str| format!("{}/aliases:{line}: {name}: ", folder.path().display());
        let (found, more) = missing(&aliases);
        let names = [(2, "gone"), (3, "folder"), (4, "plain"), (5, "odd"), (6, "name")];
        assert_eq!((found.len(), more), (names.len(), 0), "{found:?}");
        for (line, (n, name)) in found.iter().zip(names) {
            assert!(line.starts_with(&place(n, name)), "{line}");
        }
        // A shell searches for programs itself.
        aliases.shell = true;
        assert_eq!(missing(&aliases).0.len(), 3, "{:?}", missing(&aliases));
        let many: Vec<String> = (0..30).map(|n| format!("a{n}: |/nowhere")).collect();
        fs::write(&aliases.files[0], many.join("\n")).unwrap();
        assert_eq!((missing(&aliases).0.len(), missing(&aliases).1), (MISSING_MAX, 10));
    }

    /// An alias file and files that it includes; `$DIR` is their folder.
    fn files(all: &[(&str, &str)]) -> (tempfile::TempDir, AliasSettings) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in all {
            let path = folder.path().join(name);
            fs::write(&path, text.replace("$DIR", folder.path().to_str().unwrap())).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        }
        let aliases = aliases_of(&[&folder.path().join("aliases")]);
        (folder, aliases)
    }

    #[test]
    fn each_included_file_is_read_once() {
        let chain = |n: usize| format!(":include:$DIR/f{}\n:include:$DIR/f{0}\n:include:$DIR/f0\n", n + 1);
        let mut all: Vec<(String, String)> = (0..45).map(|n| (format!("f{n}"), chain(n))).collect();
        all.push(("f45".to_owned(), "|/bin/x\n".to_owned()));
        all.push(("aliases".to_owned(), "all: :include:$DIR/f0\n".to_owned()));
        let all: Vec<(&str, &str)> = all.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let (folder, aliases) = files(&all);
        let last = folder.path().join("f45");
        assert!(found(&aliases, "all", "|/bin/x", last.to_str()).unwrap().starts_with("/bin/x as "));
        assert!(found(&aliases, "all", "|/bin/y", last.to_str()).unwrap_err().contains("changed or removed"));
    }

    #[test]
    fn a_search_ends_when_nobody_waits_for_it() {
        let (folder, aliases) = files(&[("aliases", "all: |/bin/own, :include:$DIR/f\n"), ("f", "|/bin/x\n")]);
        let file = folder.path().join("f");
        let over = |target, included| find(&aliases, &recipient("all", target, included), &|| true);
        assert!(over("|/bin/own", None).is_ok());
        let reply = over("|/bin/x", file.to_str()).unwrap_err().to_string();
        assert_eq!(reply, "451 4.3.5 Alias all: reading its included files timed out");
    }

    #[test]
    fn a_bad_file_stops_only_what_is_in_it() {
        let (folder, aliases) = files(&[
            ("aliases", "all: :include:$DIR/none, :include:$DIR/bad, :include:$DIR/good, |/bin/own\n"),
            ("bad", "<x\n|/bin/bad\n"),
            ("good", "|/bin/good\n"),
        ]);
        let of = |target, name: &str| found(&aliases, "all", target, folder.path().join(name).to_str());
        assert!(found(&aliases, "all", "|/bin/own", None).is_ok());
        assert!(of("|/bin/good", "good").is_ok());
        assert!(of("|/bin/bad", "bad").unwrap_err().contains("none: No such file"), "the first that is wrong");
    }

    #[test]
    fn files_nest_and_are_as_large_as_the_limits_allow() {
        let chain: Vec<(String, String)> =
            (0..DEPTH_MAX).map(|n| (format!("f{n}"), format!(":include:$DIR/f{}\n", n + 1))).collect();
        let mut all = vec![("aliases", "deep: :include:$DIR/f0\nlarge: :include:$DIR/large\n"), ("large", "")];
        all.extend(chain.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        let (folder, aliases) = files(&all);
        let error = found(&aliases, "deep", "|/bin/x", None).unwrap_err();
        assert!(error.ends_with("f50: included files are nested more than 50 deep"), "{error}");
        let large = fs::File::options().write(true).open(folder.path().join("large")).unwrap();
        large.set_len(INCLUDE_BYTES_MAX as u64 + 1).unwrap();
        let error = found(&aliases, "large", "|/bin/x", None).unwrap_err();
        assert!(error.ends_with("large: larger than 16777216 octets"), "{error}");
    }

    #[test]
    fn what_a_user_names_is_not_roots() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let file = folder.path().join("aliases");
        fs::write(&file, "box: /var/mail/box\n").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        let aliases = aliases_of(&[&file]);
        let is_named_by_root =
            || find(&aliases, &recipient("box", "/var/mail/box", None), &|| false).unwrap().is_named_by_root;
        assert!(is_named_by_root());
        let [games, news] = ["games", "news"].map(|name| PasswdEntry::find(name).unwrap().expect("of every Debian"));
        chown(&file, Some(games.uid), None).unwrap();
        assert!(!is_named_by_root());
        assert!(found(&aliases, "box", "/var/mail/bax", None).unwrap_err().contains("changed or removed"));
        // Files included by such a file.
        let list = folder.path().join("list");
        fs::write(&file, format!("crew: :include:{}\n", list.display())).unwrap();
        fs::write(&list, "|/bin/crew\n").unwrap();
        fs::set_permissions(&list, PermissionsExt::from_mode(0o644)).unwrap();
        let of = || found(&aliases, "crew", "|/bin/crew", list.to_str());
        assert_eq!(of(), Ok("/bin/crew as games".to_owned()), "root's: the rights of who names it");
        chown(&list, Some(news.uid), None).unwrap();
        assert!(of().unwrap_err().contains(&format!("belongs to user {}", news.uid)));
    }

    #[test]
    fn an_included_file_is_its_owners() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let (file, list) = (folder.path().join("aliases"), folder.path().join("list"));
        fs::write(&file, format!("crew: :include:{}\n", list.display())).unwrap();
        fs::write(&list, "# us\n|/bin/crew\n/var/mail/crew\n").unwrap();
        for path in [&file, &list] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
        }
        let mut aliases = aliases_of(&[&file]);
        let of = |aliases: &AliasSettings| found(aliases, "crew", "|/bin/crew", list.to_str());
        assert_eq!(of(&aliases), Ok(format!("/bin/crew as {}", aliases.account.name)), "root's: the service's user");
        let user = |shell: &str| {
            let all = fs::read_to_string("/etc/passwd").unwrap();
            let line = all.lines().find(|line| line.ends_with(shell) && !line.starts_with("root:"));
            line.map(|line| PasswdEntry::find(line.split(':').next().unwrap()).unwrap().unwrap())
        };
        assert!(found(&aliases, "crew", "|/bin/other", list.to_str()).unwrap_err().contains("changed or removed"));
        fs::write(&list, "|/bin/crew\n").unwrap();
        assert!(found(&aliases, "crew", "|/bin/other", list.to_str()).unwrap_err().contains("changed or removed"));
        fs::write(&list, "|/bin/crew\n/var/mail/crew\n").unwrap();
        let games = user("/usr/sbin/nologin").expect("Debian's games has no shell");
        chown(&list, Some(games.uid), None).unwrap();
        assert!(of(&aliases).unwrap_err().contains(&format!("its owner, {}, has no login shell", games.name)));
        fs::write(&list, "ann@a.test\n").unwrap();
        assert!(of(&aliases).unwrap_err().contains("changed or removed"), "addresses need none");
        fs::write(&list, "|/bin/crew\n/var/mail/crew\n").unwrap();
        aliases.client = games.uid;
        assert!(of(&aliases).unwrap_err().contains("the server's user"));
    }
}
