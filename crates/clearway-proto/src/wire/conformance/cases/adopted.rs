//! Promises about memory that a wire did not allocate.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::base::crc32c;
use crate::wire::Reach;

pub(super) fn local(fabric: &mut dyn Fabric) -> Result<(), String> {
    let memory = fabric.foreign(64, Reach::Peers).ok_or("no foreign memory")?;
    memory.write(3, b"..the body").map_err(|missing| format!("write: {missing}"))?;
    let wire = fabric.wire(Rank(0));
    let region = wire.adopt(Arc::clone(&memory)).map_err(|missing| format!("adopt: {missing}"))?;
    expect("a reference", &(wire.region(region).is_none() && wire.region_mut(region).is_none()), &true)?;
    let body = Span { region, offset: 5, length: 8 };
    let (send, heads) = send_to(TO_1, Class::Bulk, b"", body, None);
    post(fabric, Rank(0), send, &heads);
    let Seen::Message { body: got, .. } = one(await_arrivals(fabric, Rank(1), 1)?)? else {
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
    let refused = Answer::Refused(Missing::Memory);
    let digest = Answer::Done(u64::from(crc32c(b"the body")));
    let done = Answer::Done(0);
    expect("answers", &answers, &vec![done, done, done, digest, refused, refused])?;
    let mut bytes = [0; 32];
    memory.read(32, &mut bytes).map_err(|missing| format!("read: {missing}"))?;
    expect("copied", &&bytes[..], &&b"othe body\0\0\0\0\0\0\0the body\0\0\0\0\0\0\0\0"[..])
}

pub(super) fn by_peers(fabric: &mut dyn Fabric) -> Result<(), String> {
    let theirs = fabric.foreign(64, Reach::Peers).ok_or("no foreign memory")?;
    let target = fabric.wire(Rank(1)).adopt(Arc::clone(&theirs)).map_err(|missing| format!("adopt: {missing}"))?;
    let source = memory(fabric, Rank(0), b"one-sided")?;
    let answer = post(fabric, Rank(0), write_of(source, RemoteSpan { region: target, offset: 5 }, 9), &[]);
    let into = Span { region: target, offset: 5, length: 9 };
    let landed = one(await_arrivals(fabric, Rank(1), 1)?)?;
    expect("at the target", &landed, &Seen::Landed { from: Rank(0), into, immediate: 42 })?;
    if answer == Answer::Posted {
        let done = one(await_arrivals(fabric, Rank(0), 1)?)?;
        expect("completion", &done, &Seen::Done { token: Token(1), status: Status::Complete, value: 0 })?;
    }
    let mut bytes = [0; 16];
    theirs.read(0, &mut bytes).map_err(|missing| format!("read: {missing}"))?;
    expect("memory", &&bytes[..], &&b"\0\0\0\0\0one-sided\0\0"[..])?;
    let outside = post(fabric, Rank(0), write_of(source, RemoteSpan { region: target, offset: 60 }, 9), &[]);
    let refused = Status::Refused(Missing::Memory);
    match outside {
        Answer::Posted => {
            let done = one(await_arrivals(fabric, Rank(0), 1)?)?;
            expect("outside", &done, &Seen::Done { token: Token(1), status: refused, value: 0 })?;
        }
        answer => expect("outside", &answer, &Answer::Refused(Missing::Memory))?,
    }
    if !fabric.wire(Rank(0)).capabilities().operations.has(Read) {
        return Ok(());
    }
    let into = Span { region: source, offset: 0, length: 3 };
    let from = RemoteSpan { region: target, offset: 9 };
    let (path, class, token) = (PathId(0), Class::Bulk, Token(5));
    post(fabric, Rank(0), Operation::Read { peer: Rank(1), path, class, from, into, token }, &[]);
    let done = one(await_arrivals(fabric, Rank(0), 1)?)?;
    expect("completion", &done, &Seen::Done { token, status: Status::Complete, value: 0 })?;
    let bytes = fabric.wire(Rank(0)).region(source).unwrap_or_default().to_vec();
    expect("what was read", &bytes, &b"sid-sided".to_vec())
}

pub(super) fn words(fabric: &mut dyn Fabric) -> Result<(), String> {
    let theirs = fabric.foreign(64, Reach::Peers).ok_or("no foreign memory")?;
    let region = fabric.wire(Rank(1)).adopt(Arc::clone(&theirs)).map_err(|missing| format!("adopt: {missing}"))?;
    let mut sum = 0;
    for step in 1..20 {
        // Another owner of the memory changes the word meanwhile.
        let own = theirs.change(8, AtomicKind::FetchAdd(1_000));
        expect("own change", &own, &Ok(sum))?;
        sum += 1_000;
        let (token, at, kind) = (Token(step), RemoteSpan { region, offset: 8 }, AtomicKind::FetchAdd(step));
        let operation = Operation::Atomic { to: Rank(1), path: PathId(0), class: Class::Control, kind, at, token };
        let got = match post(fabric, Rank(0), operation, &[]) {
            Answer::Posted => one(await_arrivals(fabric, Rank(0), 1)?)?,
            Answer::Done(value) => Seen::Done { token, status: Status::Complete, value },
            answer => return Err(format!("{kind:?}: {answer:?}")),
        };
        expect("old value", &got, &Seen::Done { token, status: Status::Complete, value: sum })?;
        sum += step;
    }
    expect("in the end", &theirs.change(8, AtomicKind::Swap(0)), &Ok(sum))
}

pub(super) fn process(fabric: &mut dyn Fabric) -> Result<(), String> {
    let memory = fabric.foreign(64, Reach::Local).ok_or("no foreign memory")?;
    memory.write(8, b"a private word").map_err(|missing| format!("write: {missing}"))?;
    for rank in [Rank(0), Rank(1)] {
        let region = fabric.wire(rank).adopt(Arc::clone(&memory));
        expect("region", &region, &Ok(RegionId::PROCESS))?;
        expect("a second one", &fabric.wire(rank).adopt(Arc::clone(&memory)), &Err(Missing::Memory))?;
    }
    let body = Span { region: RegionId::PROCESS, offset: 10, length: 7 };
    let (send, heads) = send_to(TO_1, Class::Bulk, b"", body, None);
    post(fabric, Rank(0), send, &heads);
    let Seen::Message { body: got, .. } = one(await_arrivals(fabric, Rank(1), 1)?)? else {
        return Err("something else than a message arrived".into());
    };
    expect("body", &got, &b"private".to_vec())?;
    if !fabric.wire(Rank(0)).capabilities().operations.has(Write) {
        return Ok(());
    }
    let source = super::memory(fabric, Rank(0), b"intruder!")?;
    let into = RemoteSpan { region: RegionId::PROCESS, offset: 8 };
    if post(fabric, Rank(0), write_of(source, into, 9), &[]) == Answer::Posted {
        let done = one(await_arrivals(fabric, Rank(0), 1)?)?;
        let refused = Seen::Done { token: Token(1), status: Status::Refused(Missing::Memory), value: 0 };
        expect("completion", &done, &refused)?;
    }
    let mut bytes = [0; 14];
    memory.read(8, &mut bytes).map_err(|missing| format!("read: {missing}"))?;
    expect("memory", &&bytes[..], &&b"a private word"[..])
}
