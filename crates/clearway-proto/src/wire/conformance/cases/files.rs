//! Promises about files.

use alloc::string::String;

use super::*;
use crate::wire::{FileId, FileKind};

/// Does one file operation at rank 0; returns what its completion says.
fn perform(
    fabric: &mut dyn Fabric,
    kind: FileKind,
    file: FileId,
    at: u64,
    memory: Span,
) -> Result<(Status, u64), String> {
    let token = Token(at);
    let operation = Operation::File { kind, file, at, memory, class: Class::Scavenger, token };
    let answer = post(fabric, Rank(0), operation, &[]);
    expect("answer", &answer, &PostOutcome::Posted)?;
    ending(fabric, answer, token)
}

fn opened(fabric: &mut dyn Fabric) -> Result<FileId, String> {
    fabric.open_file(Rank(0)).ok_or_else(|| "no file was opened".into())
}

pub(super) fn round_trip(fabric: &mut dyn Fabric) -> Result<(), String> {
    let (file, other) = (opened(fabric)?, opened(fabric)?);
    let region = memory(fabric, Rank(0), b"the file........the other.......")?;
    let span = |offset, length| Span { region, offset, length };
    let steps = [
        (FileKind::Write, file, 0, span(0, 8), 8),
        (FileKind::Write, other, 3, span(16, 9), 9),
        (FileKind::Write, file, 4, span(20, 5), 5),
        (FileKind::Read, file, 0, span(8, 8), 8),
        (FileKind::Read, other, 2, span(25, 7), 7),
        (FileKind::Write, file, 0, span(0, 0), 0),
        (FileKind::Read, file, 0, span(0, 0), 0),
    ];
    for (kind, file, at, memory, value) in steps {
        let done = perform(fabric, kind, file, at, memory)?;
        expect("completion", &done, &(Status::Complete, value))?;
    }
    let bytes = fabric.wire(Rank(0)).region(region).unwrap_or_default().to_vec();
    expect("memory", &bytes, &b"the filethe othethe other\0the ot".to_vec())
}

pub(super) fn end(fabric: &mut dyn Fabric) -> Result<(), String> {
    let file = opened(fabric)?;
    let region = memory(fabric, Rank(0), b"short.........")?;
    let place = |length| Span { region, offset: 6, length };
    let written = Span { region, offset: 0, length: 5 };
    expect("write", &perform(fabric, FileKind::Write, file, 0, written)?, &(Status::Complete, 5))?;
    for (at, length, value) in [(0, 8, 5), (3, 8, 2), (5, 8, 0), (1 << 40, 8, 0), (u64::MAX, 8, 0)]
    {
        let done = perform(fabric, FileKind::Read, file, at, place(length))?;
        expect("read at the end", &done, &(Status::Complete, value))?;
    }
    let bytes = fabric.wire(Rank(0)).region(region).unwrap_or_default().to_vec();
    expect("memory", &bytes, &b"short.rtort...".to_vec())
}

pub(super) fn sync(fabric: &mut dyn Fabric) -> Result<(), String> {
    let file = opened(fabric)?;
    let region = memory(fabric, Rank(0), b"kept....")?;
    let span = |offset| Span { region, offset, length: 4 };
    expect(
        "sync of nothing",
        &perform(fabric, FileKind::Sync, file, 0, Span::EMPTY)?,
        &(Status::Complete, 0),
    )?;
    expect("write", &perform(fabric, FileKind::Write, file, 0, span(0))?, &(Status::Complete, 4))?;
    expect(
        "sync",
        &perform(fabric, FileKind::Sync, file, 0, Span::EMPTY)?,
        &(Status::Complete, 0),
    )?;
    expect("read", &perform(fabric, FileKind::Read, file, 0, span(4))?, &(Status::Complete, 4))?;
    let bytes = fabric.wire(Rank(0)).region(region).unwrap_or_default().to_vec();
    expect("memory", &bytes, &b"keptkept".to_vec())
}

pub(super) fn unknown(fabric: &mut dyn Fabric) -> Result<(), String> {
    let known = opened(fabric)?;
    let region = memory(fabric, Rank(0), &[0; 16])?;
    let span = |region, offset| Span { region, offset, length: 8 };
    let inside = span(region, 8);
    let refused = [
        (FileKind::Read, FileId(u32::MAX), inside),
        (FileKind::Write, FileId(u32::MAX), inside),
        (FileKind::Sync, FileId(u32::MAX), Span::EMPTY),
        (FileKind::Read, known, span(region, 9)),
        (FileKind::Write, known, span(region, 9)),
        (FileKind::Write, known, span(RegionId(999), 0)),
        (FileKind::Read, known, span(RegionId::RECEIVE, 0)),
    ];
    for (kind, file, memory) in refused {
        let operation =
            Operation::File { kind, file, at: 0, memory, class: Class::Bulk, token: Token(0) };
        expect(
            "answer",
            &post(fabric, Rank(0), operation, &[]),
            &PostOutcome::Refused(RefusalReason::Memory),
        )?;
    }
    await_arrivals(fabric, Rank(0), 0).map(drop)
}
