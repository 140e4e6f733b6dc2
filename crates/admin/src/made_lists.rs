//! `stentor list`: makes, changes and deletes lists, each with a file of its own in the data folder.
//!
//! Promise: a list is in force and durable when the command ends, or nothing has changed. The configuration is checked
//! with the new text before that is written, so that a crash leaves one that the server starts with. If the reload is
//! refused all the same, the file gets its former text again. One change at a time. Lists of the configuration file are
//! left to whoever edits it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use stentor_config::ListFileChange;
use stentor_config::list_files::{self, ListFileError};
use stentor_control::format::plural;
use stentor_control::{ControlReply, ErrorCode, ListChange, ListName, ListOverview, ListTable, NewList, Problem};
use stentor_core::{Core, Settings};
use stentor_lists::PostingPolicy;
use toml::{Table, Value};

use crate::lists;

/// Age at which undelivered copies of a post expire.
const EXPIRE_S: i64 = 86_400;
/// Posts that wait for a subscriber before they become a digest.
const COALESCE_OVER: i64 = 3;

/// A change of a list's file.
pub(crate) struct ListEdit {
    pub name: String,
    /// Text of its file; `None`: the list is deleted.
    text: Option<String>,
    before: Option<String>,
}

impl ListEdit {
    pub fn create(core: &Core, new: NewList) -> Result<ListEdit, Problem> {
        let NewList { name, address, owner, style, set } = new;
        let settings = core.settings();
        if settings.list(&name).is_some() {
            return Err(bad(format!("there is a list {name} already; `stentor list set {name} KEY=VALUE` changes it")));
        }
        // Refuses bad names.
        list_files::keys(&settings.config.data_dir, &name).map_err(|error| failed(&error))?;
        let mut keys = styled(style.as_deref().unwrap_or("discussion"), &owner)?;
        keys.insert("address".to_owned(), Value::String(address));
        keys.insert("owner".to_owned(), Value::String(owner));
        if settings.config.http.link_base.is_some() {
            keys.insert("one_click".to_owned(), Value::Boolean(true));
        }
        assign(&mut keys, &set)?;
        ListEdit::new(core, name, Some(&keys))
    }

    pub fn set(core: &Core, change: ListChange) -> Result<ListEdit, Problem> {
        let ListChange { name, set, unset } = change;
        if set.is_empty() && unset.is_empty() {
            return Err(bad("no key given: use KEY=VALUE or --unset KEY".to_owned()));
        }
        let mut keys = made(core, &name)?;
        assign(&mut keys, &set)?;
        for key in &unset {
            if matches!(key.as_str(), "address" | "owner") {
                return Err(bad(format!("a list needs `{key}`: set another one instead")));
            }
            if keys.remove(key).is_none() {
                return Err(bad(format!("list {name} does not set `{key}`")));
            }
        }
        ListEdit::new(core, name, Some(&keys))
    }

    pub fn delete(core: &Core, list: ListName) -> Result<ListEdit, Problem> {
        made(core, &list.name)?;
        ListEdit::new(core, list.name, None)
    }

    fn new(core: &Core, name: String, keys: Option<&Table>) -> Result<ListEdit, Problem> {
        let before = list_files::read_text(&core.settings().config.data_dir, &name).map_err(|error| failed(&error))?;
        let text = keys.map(|keys| list_files::text_of(&name, keys));
        Ok(ListEdit { name, text, before })
    }

    /// Checks the configuration with the change, before anything is written. Blocks.
    pub fn check(&self, settings: &Settings) -> Result<(), Problem> {
        let config = &settings.config;
        let Some(file) = config.file.as_deref() else { return Ok(()) };
        let path = list_files::path_of(&config.data_dir, &self.name);
        let change = ListFileChange { path, text: self.text.clone() };
        stentor_config::check_list_file(file, &change).map_err(|found| {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            Problem::new(ErrorCode::BadConfiguration, format!("nothing was changed:\n{}", found.join("\n")))
        })
    }

    /// Writes the file. Blocks.
    pub fn write(&self, data_dir: &Path) -> Result<(), Problem> {
        put(data_dir, &self.name, self.text.as_deref()).map_err(|error| failed(&error))
    }

    /// Writes the former text. Blocks.
    pub fn undo(&self, data_dir: &Path) -> Result<(), Problem> {
        put(data_dir, &self.name, self.before.as_deref()).map_err(|error| failed(&error))
    }

    pub fn is_deletion(&self) -> bool {
        self.text.is_none()
    }
}

fn put(data_dir: &Path, name: &str, text: Option<&str>) -> Result<(), ListFileError> {
    match text {
        Some(text) => list_files::write(data_dir, name, text),
        None => list_files::delete(data_dir, name),
    }
}

/// Keys of a new list: members post to a discussion, and only the owner to the others.
fn styled(style: &str, owner: &str) -> Result<Table, Problem> {
    let post = match style {
        "discussion" => Value::String("members".to_owned()),
        "announce" | "newsletter" => Value::Array(vec![Value::String(owner.to_owned())]),
        other => {
            return Err(bad(format!("{other:?} is not a valid style: discussion, announce or newsletter")));
        }
    };
    let mut keys = Table::new();
    keys.insert("post".to_owned(), post);
    keys.insert("verp".to_owned(), Value::String("tagged".to_owned()));
    keys.insert("expire_s".to_owned(), Value::Integer(EXPIRE_S));
    keys.insert("coalesce_over".to_owned(), Value::Integer(COALESCE_OVER));
    keys.insert("report_to".to_owned(), Value::String("owner".to_owned()));
    Ok(keys)
}

fn assign(keys: &mut Table, set: &BTreeMap<String, String>) -> Result<(), Problem> {
    for (key, text) in set {
        let value = list_files::value(key, text).map_err(|error| failed(&error))?;
        keys.insert(key.clone(), value);
    }
    Ok(())
}

/// Returns the keys of a list that was made.
fn made(core: &Core, name: &str) -> Result<Table, Problem> {
    let settings = core.settings();
    if let Some(keys) = list_files::keys(&settings.config.data_dir, name).map_err(|error| failed(&error))? {
        return Ok(keys);
    }
    if let Some(problem) = lists::unknown(core, Some(name)) {
        return Err(problem);
    }
    let file = settings.config.file.as_deref().unwrap_or(Path::new("the configuration"));
    Err(bad(format!("list {name} is in {}: change it there, then `stentor reload`", file.display())))
}

/// All lists, or one with its keys.
pub(crate) fn table(core: &Arc<Core>, name: Option<&str>) -> Result<ControlReply, Problem> {
    if let Some(problem) = lists::unknown(core, name) {
        return Err(problem);
    }
    let settings = core.settings();
    let wanted = settings.config.lists.iter().filter(|list| name.is_none_or(|name| **list.list.name() == *name));
    let mut rows: Vec<ListOverview> = wanted
        .map(|config| {
            let list = config.list.settings();
            let in_file = || core.with(|hub, _| hub.store.list(&list.name).map(|state| state.ids.len() as u64));
            ListOverview {
                name: list.name.to_string(),
                address: list.address.to_string(),
                owner: list.owner.as_ref().map(ToString::to_string).unwrap_or_default(),
                post: posters(&list.post),
                members: match &config.subscribers {
                    Some(_) => in_file(),
                    None => Some(core.registry.member_count(&list.name)),
                },
                members_in: config
                    .subscribers
                    .as_ref()
                    .map_or("registry".to_owned(), |path| path.display().to_string()),
                is_made: list_files::path_of(&settings.config.data_dir, &list.name).is_file(),
                keys: BTreeMap::new(),
            }
        })
        .collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    if let (Some(_), [row]) = (name, &mut rows[..])
        && row.is_made
    {
        let keys = made(core, &row.name)?;
        row.keys = keys.into_iter().map(|(key, value)| (key, value.to_string())).collect();
    }
    Ok(ControlReply::Lists(Box::new(ListTable { rows })))
}

fn posters(post: &PostingPolicy) -> String {
    match post {
        PostingPolicy::Anyone => "anyone".to_owned(),
        PostingPolicy::Members => "members".to_owned(),
        PostingPolicy::Named(named) => named.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Deletes the members of a list that no longer exists.
pub(crate) async fn delete_members(core: &Core, name: &str) -> Result<u64, Problem> {
    let mut deleted = 0;
    loop {
        match core.registry.delete_members(name).await {
            Ok(0) => return Ok(deleted),
            Ok(some) => deleted += some as u64,
            Err(error) => {
                let text = format!(
                    "list deleted, but {} could not be deleted: {error}; create the list again and delete it",
                    plural(core.registry.member_count(name), "member")
                );
                return Err(Problem::new(ErrorCode::Failed, text));
            }
        }
    }
}

fn bad(text: String) -> Problem {
    Problem::new(ErrorCode::BadRequest, text)
}

fn failed(error: &ListFileError) -> Problem {
    let code = match error {
        ListFileError::Name(_) | ListFileError::Value { .. } => ErrorCode::BadRequest,
        ListFileError::Read { .. }
        | ListFileError::Write { .. }
        | ListFileError::Delete { .. }
        | ListFileError::Damaged { .. } => ErrorCode::Failed,
    };
    Problem::new(code, error.to_string())
}
