//! `stentor suppress export`: all entries as CSV, page by page, so that memory does not grow with them.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use stentor_control::suppression_view::ROWS_MAX;
use stentor_control::{
    Client, ControlError, ControlReply, Request, SuppressionOptions, SuppressionRequest, SuppressionView,
};
use stentor_registry::csv::{entry_line, header_line};
use stentor_registry::{Scope, Subject, Suppression, SuppressionError, SuppressionReason};

use crate::asking::{ServerArgs, streamed};

pub(super) fn export(server: &ServerArgs) -> Result<ExitCode, ExitCode> {
    let socket = server.socket()?;
    let mut client = Client::connect(&socket).map_err(|error| server.fail(&error.to_string()))?;
    let mut output = BufWriter::new(io::stdout().lock());
    let written = write_all(&mut client, &mut output).and_then(|()| output.flush().map_err(ControlError::Output));
    Ok(streamed(server, written))
}

fn write_all(client: &mut Client, output: &mut impl Write) -> Result<(), ControlError> {
    output.write_all(header_line().as_bytes()).map_err(ControlError::Output)?;
    let mut options = SuppressionOptions { rows_max: ROWS_MAX, ..SuppressionOptions::default() };
    loop {
        let request = Request::Suppression(SuppressionRequest::List(options.clone()));
        let ControlReply::Suppressions(list) = client.ask(&request)? else {
            return Err(ControlError::Protocol("unexpected reply".to_owned()));
        };
        for row in &list.rows {
            let entry = entry_of(row).map_err(|error| ControlError::Protocol(error.to_string()))?;
            output.write_all(entry_line(&entry).as_bytes()).map_err(ControlError::Output)?;
        }
        options.after = list.next;
        if options.after.is_none() {
            return Ok(());
        }
    }
}

fn entry_of(row: &SuppressionView) -> Result<Suppression, SuppressionError> {
    let reason = SuppressionReason::parse(&row.reason)?;
    let (subject, scope) = (Subject::parse(&row.subject)?, Scope::parse(&row.scope)?);
    let entry = Suppression::new(subject, scope, reason, &row.source, row.since);
    Ok(Suppression { note: row.note.as_str().into(), expires: row.expires, ..entry })
}
