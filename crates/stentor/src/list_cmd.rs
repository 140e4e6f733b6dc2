//! `stentor list` and `stentor member`: lists and their members. All of it works through the running server.
//!
//! An import sends its file in parts; after a failure it can be repeated as it is, since members stay as they are.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use stentor_control::format::plural;
use stentor_control::list_view::{MEMBERS_MAX, ROWS_DEFAULT, ROWS_MAX};
use stentor_control::{
    Client, ControlError, ControlReply, DeliverySetting, ListChange, ListName, MemberOptions, MemberRemoval, NewList,
    NewMember, NewMembers, PersonOptions, Request, RosterRequest,
};
use stentor_lists::subscribers::{self, BadLine, Occurrence};

use crate::asking::{QueryArgs, ServerArgs, ask, fail, query, streamed, usage};

/// Octets of the members of one request; the limit of a request is 64 KiB.
const PART_BYTES_MAX: usize = 48 * 1024;
/// Octets that a member takes beside address and name.
const MEMBER_BYTES: usize = 60;
/// Errors of a file that are printed.
const ERRORS_MAX: usize = 20;

#[derive(Args)]
pub(crate) struct ListOptions {
    #[command(subcommand)]
    command: ListCommand,
}

#[derive(Subcommand)]
enum ListCommand {
    /// Make a list whose members are in the registry.
    ///
    /// A discussion takes posts from members, the others from the owner alone. Copies have return paths of their own
    /// and, with `link_base`, one-click unsubscribing; they expire after a day with a report to the owner.
    Create {
        /// Name of the list.
        name: String,
        /// Where posts are sent.
        #[arg(long, value_name = "ADDRESS")]
        address: String,
        /// Recipient of bounces and notices: a person.
        #[arg(long, value_name = "ADDRESS")]
        owner: String,
        #[arg(long, value_enum, default_value_t = Style::Discussion)]
        style: Style,
        /// A key of `[lists.NAME]` and its value: description="All the news".
        #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
        set: Vec<(String, String)>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Change keys of a list that was made by `create`.
    Set {
        name: String,
        /// Keys of `[lists.NAME]` and their values.
        #[arg(value_name = "KEY=VALUE", value_parser = assignment)]
        set: Vec<(String, String)>,
        /// A key that gets its default.
        #[arg(long, value_name = "KEY")]
        unset: Vec<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show all lists, or one with its keys.
    Show {
        name: Option<String>,
        #[command(flatten)]
        query: QueryArgs,
    },
    /// Delete a list that was made by `create`, with its members.
    Delete {
        name: String,
        /// Confirm that its members are deleted, too.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Who posts to a new list.
#[derive(Clone, Copy, ValueEnum)]
enum Style {
    Discussion,
    Announce,
    Newsletter,
}

impl Style {
    fn name(self) -> &'static str {
        match self {
            Style::Discussion => "discussion",
            Style::Announce => "announce",
            Style::Newsletter => "newsletter",
        }
    }
}

#[derive(Args)]
pub(crate) struct MemberCommandOptions {
    #[command(subcommand)]
    command: MemberCommand,
}

#[derive(Subcommand)]
enum MemberCommand {
    /// Add members; they get the next post.
    Add {
        list: String,
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<String>,
        /// The person's name, for a single address.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        how: AddArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Remove members; waiting posts are not sent to them.
    Remove {
        list: String,
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<String>,
        /// Recorded in the journal's audit record.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Change which posts members get.
    Set {
        list: String,
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<String>,
        #[arg(long, value_enum)]
        delivery: Delivery,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List members in the order of their addresses.
    List {
        list: String,
        /// Number of members to list.
        #[arg(long, short = 'n', default_value_t = ROWS_DEFAULT, value_name = "N",
            value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
        limit: u32,
        #[command(flatten)]
        query: QueryArgs,
    },
    /// Show a person: lists, how the person joined and left them, suppressions.
    Show {
        address: String,
        #[command(flatten)]
        query: QueryArgs,
    },
    /// Add members from a subscribers file: an address or `Name <address>` a line.
    Import {
        list: String,
        file: PathBuf,
        /// Only check the file.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        how: AddArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Write all members as a subscribers file to standard output.
    Export {
        list: String,
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Args)]
struct AddArgs {
    /// Which posts they get.
    #[arg(long, value_enum, default_value_t = Delivery::Mail)]
    delivery: Delivery,
    /// Add those who left or complained, too.
    #[arg(long)]
    again: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Delivery {
    /// Each post by mail.
    Mail,
    /// No posts; the member may post.
    None,
}

impl Delivery {
    fn name(self) -> &'static str {
        match self {
            Delivery::Mail => "mail",
            Delivery::None => "none",
        }
    }
}

/// Parses `KEY=VALUE`.
fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn send(server: &ServerArgs, request: RosterRequest) -> ExitCode {
    ask(server, &Request::List(request))
}

pub(crate) fn list(options: ListOptions) -> ExitCode {
    match options.command {
        ListCommand::Create { name, address, owner, style, set, server } => {
            let style = Some(style.name().to_owned());
            send(&server, RosterRequest::Create(NewList { name, address, owner, style, set: BTreeMap::from_iter(set) }))
        }
        ListCommand::Set { name, set, unset, server } => {
            send(&server, RosterRequest::Set(ListChange { name, set: BTreeMap::from_iter(set), unset }))
        }
        ListCommand::Show { name, query: args } => {
            let request = name.map_or(RosterRequest::Lists, |name| RosterRequest::Show(ListName { name }));
            query(&args, &Request::List(request))
        }
        ListCommand::Delete { name, yes: true, server } => send(&server, RosterRequest::Delete(ListName { name })),
        ListCommand::Delete { name, .. } => usage(&format!(
            "this deletes the members of {name}, too; `stentor member export {name}` saves them. Confirm with --yes"
        )),
    }
}

pub(crate) fn member(options: MemberCommandOptions) -> ExitCode {
    match options.command {
        MemberCommand::Add { list, addresses, name, how, server } => {
            if name.is_some() && addresses.len() > 1 {
                return usage("--name is for a single address; use `stentor member import LIST FILE` for several");
            }
            let delivery = Some(how.delivery.name().to_owned());
            let member = |address| NewMember { address, name: name.clone(), delivery: delivery.clone(), joined: None };
            let members = addresses.into_iter().map(member).collect();
            send(&server, RosterRequest::Add(NewMembers { list, members, again: how.again, source: None }))
        }
        MemberCommand::Remove { list, addresses, reason, server } => {
            send(&server, RosterRequest::Remove(MemberRemoval { list, addresses, reason }))
        }
        MemberCommand::Set { list, addresses, delivery, server } => {
            let delivery = delivery.name().to_owned();
            send(&server, RosterRequest::SetDelivery(DeliverySetting { list, addresses, delivery }))
        }
        MemberCommand::List { list, limit, query: args } => {
            query(&args, &Request::List(RosterRequest::Members(MemberOptions { list, after: None, rows_max: limit })))
        }
        MemberCommand::Show { address, query: args } => {
            query(&args, &Request::List(RosterRequest::Person(PersonOptions { address })))
        }
        MemberCommand::Import { list, file, dry_run, how, server } => {
            let (members, bad) = match read(&file) {
                Ok(read) => read,
                Err(error) => return fail(&format!("{}: {error}", file.display())),
            };
            for line in bad.iter().take(ERRORS_MAX) {
                eprintln!("stentor: {}: {line}", file.display());
            }
            if !bad.is_empty() {
                return fail(&format!("{}: nothing was imported; correct these lines", file.display()));
            }
            if dry_run {
                println!("{} without errors; nothing was imported", plural(members.len() as u64, "member"));
                return ExitCode::SUCCESS;
            }
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let source = format!("import {name}").chars().filter(|c| !c.is_control()).take(100).collect();
            let new = NewMembers { list, members: Vec::new(), again: how.again, source: Some(source) };
            import(&server, &new, how.delivery, members)
        }
        MemberCommand::Export { list, server } => export(&server, list).unwrap_or_else(|code| code),
    }
}

/// Reads a subscribers file.
fn read(path: &Path) -> io::Result<(Vec<NewMember>, Vec<BadLine>)> {
    let (mut file, _) = subscribers::open(path)?;
    let mut members = Vec::new();
    let report = subscribers::read(&mut file as &mut dyn Read, &mut |subscriber| {
        let name = String::from_utf8_lossy(subscriber.name).trim().trim_matches('"').to_owned();
        let name = Some(name).filter(|name| !name.is_empty());
        members.push(NewMember { address: subscriber.address.to_owned(), name, ..NewMember::default() });
        Occurrence::First
    })?;
    Ok((members, report.bad_lines))
}

fn import(server: &ServerArgs, new: &NewMembers, delivery: Delivery, members: Vec<NewMember>) -> ExitCode {
    let connected = server.socket().map(|socket| Client::connect(&socket));
    let mut client = match connected {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return server.fail(&error.to_string()),
        Err(code) => return code,
    };
    let (all, mut sent, mut joined, mut remarks) = (members.len() as u64, 0, 0, Vec::new());
    let mut rest = members.into_iter().peekable();
    while rest.peek().is_some() {
        let (mut part, mut octets) = (Vec::new(), 0);
        while let Some(member) = rest.peek() {
            octets += MEMBER_BYTES + 2 * (member.address.len() + member.name.as_ref().map_or(0, String::len));
            if !part.is_empty() && (octets > PART_BYTES_MAX || part.len() == MEMBERS_MAX) {
                break;
            }
            let Some(member) = rest.next() else { break };
            part.push(NewMember { delivery: Some(delivery.name().to_owned()), ..member });
        }
        let count = part.len() as u64;
        let request = Request::List(RosterRequest::Add(NewMembers { members: part, ..new.clone() }));
        match client.ask(&request) {
            Ok(ControlReply::Done { count: Some(more), remarks: doubts, .. }) => {
                joined += more;
                sent += count;
                remarks.extend(doubts);
            }
            Ok(ControlReply::Error(problem)) => {
                return server.fail(&format!("{}; {sent} of {all} members were sent before", problem.text));
            }
            Ok(_) => return server.fail("unexpected reply"),
            Err(error) => {
                return server.fail(&format!("{error}; {sent} of {all} members were sent: repeat the import"));
            }
        }
    }
    println!("{} read: {joined} added to {}, {} not", plural(all, "member"), new.list, all - joined);
    for remark in remarks.iter().take(ERRORS_MAX) {
        eprintln!("stentor: {remark}");
    }
    ExitCode::SUCCESS
}

fn export(server: &ServerArgs, list: String) -> Result<ExitCode, ExitCode> {
    let socket = server.socket()?;
    let mut client = Client::connect(&socket).map_err(|error| server.fail(&error.to_string()))?;
    let mut output = BufWriter::new(io::stdout().lock());
    let written = write_all(&mut client, list, &mut output).and_then(|()| output.flush().map_err(ControlError::Output));
    Ok(streamed(server, written))
}

fn write_all(client: &mut Client, list: String, output: &mut impl Write) -> Result<(), ControlError> {
    let mut options = MemberOptions { list, after: None, rows_max: ROWS_MAX };
    loop {
        let table = match client.ask(&Request::List(RosterRequest::Members(options.clone())))? {
            ControlReply::Members(table) => table,
            ControlReply::Error(problem) => return Err(ControlError::Refused(problem)),
            _ => return Err(ControlError::Protocol("unexpected reply".to_owned())),
        };
        for row in &table.rows {
            let name = row.name.replace('\\', "\\\\").replace('"', "\\\"");
            let line = if name.is_empty() { row.address.clone() } else { format!("\"{name}\" <{}>", row.address) };
            writeln!(output, "{line}").map_err(ControlError::Output)?;
        }
        options.after = table.next;
        if options.after.is_none() {
            return Ok(());
        }
    }
}
