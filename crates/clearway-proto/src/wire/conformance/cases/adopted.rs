//! Promises about memory that a wire did not allocate.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::base::crc32c;
use crate::wire::{AdoptedMemory, MemoryAccess};

/// Returns 64 bytes that `rank` has adopted.
fn adopted(fabric: &mut dyn Fabric, rank: Rank) -> Result<(AdoptedMemory, RegionId), String> {
    let memory = fabric.foreign(64, MemoryAccess::Peers).ok_or("no foreign memory")?;
    let region = fabric
        .wire(rank)
        .adopt(Arc::clone(&memory))
        .map_err(|missing| format!("adopt: {missing}"))?;
    Ok((memory, region))
}

pub(super) fn local(fabric: &mut dyn Fabric) -> Result<(), String> {
    let (memory, region) = adopted(fabric, Rank(0))?;
    memory.write(3, b"..the body").map_err(|missing| format!("write: {missing}"))?;
    let wire = fabric.wire(Rank(0));
    expect(
        "a reference",
        &(wire.region(region).is_none() && wire.region_mut(region).is_none()),
        &true,
    )?;
    let body = Span { region, offset: 5, length: 8 };
    let (send, heads) = send_to(TO_1, Class::Bulk, b"", body, None);
    post(fabric, Rank(0), send, &heads);
    let ReceivedMessage::Message { body: got, .. } = one(await_arrivals(fabric, Rank(1), 1)?)?
    else {
        return Err("something else than a message arrived".into());
    };
    expect("body", &got, &b"the body".to_vec())?;
    let own = super::memory(fabric, Rank(0), b"own bytes")?;
    let operations = [
        Operation::Copy { from: body, into: Span { region: own, offset: 1, length: 8 } },
        Operation::Copy {
            from: Span { region: own, offset: 0, length: 9 },
            into: Span { region, offset: 32, length: 9 },
        },
        Operation::Copy { from: body, into: Span { region, offset: 48, length: 8 } },
        Operation::Digest { of: body, token: Token(1) },
        Operation::Digest { of: Span { region, offset: 60, length: 5 }, token: Token(2) },
        Operation::Copy { from: body, into: Span { region, offset: 57, length: 8 } },
    ];
    let mut answers = Vec::new();
    fabric.wire(Rank(0)).post(&operations, &[], &mut answers);
    let refused = PostOutcome::Refused(RefusalReason::Memory);
    let digest = PostOutcome::Done(u64::from(crc32c(b"the body")));
    let done = PostOutcome::Done(0);
    expect("answers", &answers, &vec![done, done, done, digest, refused, refused])?;
    let mut bytes = [0; 32];
    memory.read(32, &mut bytes).map_err(|missing| format!("read: {missing}"))?;
    expect("copied", &&bytes[..], &&b"othe body\0\0\0\0\0\0\0the body\0\0\0\0\0\0\0\0"[..])
}

pub(super) fn by_peers(fabric: &mut dyn Fabric) -> Result<(), String> {
    let (theirs, target) = adopted(fabric, Rank(1))?;
    let source = memory(fabric, Rank(0), b"one-sided")?;
    let answer =
        post(fabric, Rank(0), write_of(source, RemoteSpan { region: target, offset: 5 }, 9), &[]);
    let into = Span { region: target, offset: 5, length: 9 };
    let landed = one(await_arrivals(fabric, Rank(1), 1)?)?;
    expect(
        "at the target",
        &landed,
        &ReceivedMessage::Landed { from: Rank(0), into, immediate: 42 },
    )?;
    expect("end", &ending(fabric, answer, Token(1))?, &DONE)?;
    let mut bytes = [0; 16];
    theirs.read(0, &mut bytes).map_err(|missing| format!("read: {missing}"))?;
    expect("memory", &&bytes[..], &&b"\0\0\0\0\0one-sided\0\0"[..])?;
    let outside =
        post(fabric, Rank(0), write_of(source, RemoteSpan { region: target, offset: 60 }, 9), &[]);
    expect("outside", &ending(fabric, outside, Token(1))?, &NO_MEMORY)?;
    if !fabric.wire(Rank(0)).capabilities().operations.has(OperationKind::Read) {
        return Ok(());
    }
    let into = Span { region: source, offset: 0, length: 3 };
    let from = RemoteSpan { region: target, offset: 9 };
    let (path, class, token) = (PathId(0), Class::Bulk, Token(5));
    let answer = post(
        fabric,
        Rank(0),
        Operation::Read { peer: Rank(1), path, class, from, into, token },
        &[],
    );
    expect("end", &ending(fabric, answer, token)?, &DONE)?;
    let bytes = fabric.wire(Rank(0)).region(source).unwrap_or_default().to_vec();
    expect("what was read", &bytes, &b"sid-sided".to_vec())
}

pub(super) fn words(fabric: &mut dyn Fabric) -> Result<(), String> {
    let (theirs, region) = adopted(fabric, Rank(1))?;
    let mut sum = 0;
    for step in 1..20 {
        // Another owner of the memory changes the word meanwhile.
        let own = theirs.change(8, AtomicKind::FetchAdd(1_000));
        expect("own change", &own, &Ok(sum))?;
        sum += 1_000;
        let (token, at, kind) =
            (Token(step), RemoteSpan { region, offset: 8 }, AtomicKind::FetchAdd(step));
        let operation = Operation::Atomic {
            to: Rank(1),
            path: PathId(0),
            class: Class::Control,
            kind,
            at,
            token,
        };
        let answer = post(fabric, Rank(0), operation, &[]);
        expect("old value", &ending(fabric, answer, token)?, &(Status::Complete, sum))?;
        sum += step;
    }
    expect("in the end", &theirs.change(8, AtomicKind::Swap(0)), &Ok(sum))
}

pub(super) fn process(fabric: &mut dyn Fabric) -> Result<(), String> {
    let memory = fabric.foreign(64, MemoryAccess::Local).ok_or("no foreign memory")?;
    memory.write(8, b"a private word").map_err(|missing| format!("write: {missing}"))?;
    for rank in [Rank(0), Rank(1)] {
        let region = fabric.wire(rank).adopt(Arc::clone(&memory));
        expect("region", &region, &Ok(RegionId::PROCESS))?;
        expect(
            "a second one",
            &fabric.wire(rank).adopt(Arc::clone(&memory)),
            &Err(RefusalReason::Memory),
        )?;
    }
    let body = Span { region: RegionId::PROCESS, offset: 10, length: 7 };
    let (send, heads) = send_to(TO_1, Class::Bulk, b"", body, None);
    post(fabric, Rank(0), send, &heads);
    let ReceivedMessage::Message { body: got, .. } = one(await_arrivals(fabric, Rank(1), 1)?)?
    else {
        return Err("something else than a message arrived".into());
    };
    expect("body", &got, &b"private".to_vec())?;
    if !fabric.wire(Rank(0)).capabilities().operations.has(OperationKind::Write) {
        return Ok(());
    }
    let source = super::memory(fabric, Rank(0), b"intruder!")?;
    let into = RemoteSpan { region: RegionId::PROCESS, offset: 8 };
    let answer = post(fabric, Rank(0), write_of(source, into, 9), &[]);
    expect("end", &ending(fabric, answer, Token(1))?, &NO_MEMORY)?;
    let mut bytes = [0; 14];
    memory.read(8, &mut bytes).map_err(|missing| format!("read: {missing}"))?;
    expect("memory", &&bytes[..], &&b"a private word"[..])
}
