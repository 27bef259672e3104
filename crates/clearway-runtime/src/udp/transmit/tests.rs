//! The decisions of sending, against a stand-in for the kernel that refuses on request.

use std::net::Ipv4Addr;

use clearway_proto::wire::RegionId;
use proptest::prelude::*;

use super::*;

/// Answers of the kernel in order, then `Ok` for everything; keeps what it took.
#[derive(Default)]
struct ScriptedKernel {
    refusals: Vec<(usize, i32)>,
    calls: usize,
    took: Vec<SegmentRun>,
    reports: u64,
    refuses_segments: bool,
}

impl RunSender for ScriptedKernel {
    fn send<'a>(
        &mut self,
        runs: &[SegmentRun],
        _pieces_of: &dyn Fn(usize) -> [&'a [u8]; 2],
    ) -> io::Result<usize> {
        let call = self.calls;
        self.calls += 1;
        if let Some((_, errno)) = self.refusals.iter().find(|(at, _)| *at == call) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let good =
            runs.iter().take_while(|run| !(self.refuses_segments && run.segment.is_some())).count();
        if good == 0 {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.took.extend(&runs[..good]);
        Ok(good)
    }

    fn drain_errors(&mut self) -> u64 {
        std::mem::take(&mut self.reports)
    }
}

fn target(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// Returns the messages of (port, length).
fn plan(messages: &[(u16, usize)]) -> Vec<PlannedMessage> {
    let message = |(answer, (port, length)): (usize, &(u16, usize))| {
        let body = Span { region: RegionId(0), offset: 0, length: *length as u32 - 16 };
        PlannedMessage { answer, to: target(*port), head: 0..16, body }
    };
    messages.iter().enumerate().map(message).collect()
}

fn joined(
    messages: &[(u16, usize)],
    segmentation: Segmentation,
) -> Vec<(usize, usize, Option<u16>)> {
    let mut runs = Vec::new();
    join(&plan(messages), 0, segmentation, &mut runs);
    runs.iter().map(|run| (run.first, run.count, run.segment)).collect()
}

fn send(
    kernel: &mut ScriptedKernel,
    messages: &[(u16, usize)],
    segmentation: &mut Segmentation,
) -> SendProgress {
    send_all(kernel, &plan(messages), segmentation, &mut Vec::new(), &|_| [&[], &[]])
}

#[test]
fn join__equal_neighbours_become_one_run_and_a_shorter_one_ends_it() {
    let messages = [(1, 100), (1, 100), (1, 60), (1, 60), (2, 60), (1, 60), (1, 70)];
    let expected = [(0, 3, Some(100)), (3, 1, None), (4, 1, None), (5, 1, None), (6, 1, None)];
    assert_eq!(joined(&messages, Segmentation::Offload), expected);
}

#[test]
fn join__a_run_ends_at_64_segments_and_at_its_longest_length() {
    let runs = joined(&[(1, 100); 130], Segmentation::Offload);
    assert_eq!(runs, [(0, 64, Some(100)), (64, 64, Some(100)), (128, 2, Some(100))]);
    let runs = joined(&[(1, 1_472); 46], Segmentation::Offload);
    assert_eq!(
        runs,
        [(0, 44, Some(1_472)), (44, 2, Some(1_472))],
        "44 x 1472 is the last below 65,000"
    );
}

#[test]
fn join__real_packets_are_never_joined() {
    assert_eq!(joined(&[(1, 100); 2], Segmentation::RealPackets), [(0, 1, None), (1, 1, None)]);
    assert_eq!(joined(&[(1, 100); 2], Segmentation::Refused), [(0, 1, None), (1, 1, None)]);
}

#[test]
fn send_all__a_device_that_refuses_segments_gets_the_same_messages_one_by_one() {
    for errno in [libc::EIO, libc::EINVAL, libc::EMSGSIZE] {
        let mut kernel = ScriptedKernel { refusals: vec![(0, errno)], ..ScriptedKernel::default() };
        let mut segmentation = Segmentation::Offload;
        let sent = send(&mut kernel, &[(1, 100), (1, 100), (1, 60)], &mut segmentation);
        assert_eq!(sent, SendProgress { messages: 3, full: None, errors: 1 });
        assert_eq!(segmentation, Segmentation::Refused);
        let took: Vec<_> = kernel.took.iter().map(|run| (run.first, run.segment)).collect();
        assert_eq!(took, [(0, None), (1, None), (2, None)]);
    }
}

#[test]
fn send_all__what_left_before_the_refusal_does_not_leave_again() {
    let mut kernel = ScriptedKernel { refuses_segments: true, ..ScriptedKernel::default() };
    let sent = send(&mut kernel, &[(1, 50), (2, 100), (2, 100)], &mut { Segmentation::Offload });
    assert_eq!((sent.messages, sent.errors), (3, 1));
    let took: Vec<_> = kernel.took.iter().map(|run| run.first).collect();
    assert_eq!(took, [0, 1, 2]);
}

#[test]
fn send_all__invalid_without_segments_loses_one_message_not_the_class() {
    let mut kernel = ScriptedKernel {
        refusals: vec![(0, libc::EINVAL), (1, libc::EINVAL), (2, libc::EINVAL)],
        ..ScriptedKernel::default()
    };
    let mut segmentation = Segmentation::Offload;
    let sent = send(&mut kernel, &[(1, 100), (2, 100)], &mut segmentation);
    assert_eq!(sent, SendProgress { messages: 2, full: None, errors: 1 });
    assert_eq!(segmentation, Segmentation::Offload);
    assert_eq!(kernel.took.len(), 1);
}

#[test]
fn send_all__a_full_socket_or_device_stops_the_class_at_that_message() {
    for (errno, full) in [(libc::EAGAIN, SendStop::Socket), (libc::ENOBUFS, SendStop::Device)] {
        let mut kernel = ScriptedKernel { refusals: vec![(0, errno)], ..ScriptedKernel::default() };
        let sent = send(&mut kernel, &[(1, 100), (2, 100)], &mut { Segmentation::Offload });
        assert_eq!(sent, SendProgress { messages: 0, full: Some(full), errors: 0 });
        assert!(kernel.took.is_empty(), "nothing may overtake");
    }
}

#[test]
fn send_all__an_older_packets_fate_does_not_lose_this_one() {
    let mut kernel = ScriptedKernel {
        refusals: vec![(0, libc::ECONNREFUSED)],
        reports: 2,
        ..ScriptedKernel::default()
    };
    let sent = send(&mut kernel, &[(1, 100)], &mut { Segmentation::Offload });
    assert_eq!(sent, SendProgress { messages: 1, full: None, errors: 2 });
    assert_eq!(kernel.took.len(), 1);
}

proptest! {
    #[test]
    fn join__runs_cover_all_messages_in_order_within_the_kernels_limits(
        messages in prop::collection::vec((1u16..3, prop::sample::select(vec![16usize, 64, 1_400, 1_472])), 0..200)
    ) {
        let planned = plan(&messages);
        let mut runs = Vec::new();
        join(&planned, 0, Segmentation::Offload, &mut runs);
        let covered: Vec<usize> = runs.iter().flat_map(SegmentRun::messages).collect();
        prop_assert_eq!(covered, (0..planned.len()).collect::<Vec<_>>());
        for run in &runs {
            let lengths: Vec<usize> = run.messages().map(|i| planned[i].length()).collect();
            prop_assert!(run.messages().all(|i| planned[i].to == run.to));
            prop_assert!(lengths.iter().sum::<usize>() <= RUN_LENGTH_MAX && run.count <= SEGMENTS_MAX);
            prop_assert_eq!(run.segment.is_some(), run.count > 1);
            if let (Some(segment), Some((last, others))) = (run.segment, lengths.split_last()) {
                prop_assert!(others.iter().all(|length| *length == usize::from(segment)));
                prop_assert!(*last <= usize::from(segment));
            }
        }
    }
}
