//! What the user asks for between ranks: the words of `--wire`.

use crate::{RemoteTransport, WireNeeds, WiresError};

/// A word of `--wire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireName {
    /// Shared memory within a host; between hosts libfabric if it has a fabric of its own, else
    /// sealed UDP.
    Auto,
    /// UDP between all ranks, also those of one host.
    Udp,
    /// Shared memory between ranks of one host.
    Shm,
    /// libfabric between all ranks, also those of one host.
    Ofi,
}

/// Whether ranks of one host share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalTransport {
    Never,
    WherePossible,
    Always,
}

/// The wires that the user asks for between the ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireRequest {
    pub(crate) near: LocalTransport,
    pub(crate) far: RemoteTransport,
}

impl WireRequest {
    /// What suits the hosts of the job.
    pub const AUTO: Self = Self { near: LocalTransport::WherePossible, far: RemoteTransport::Best };

    /// Says what `names` mean together; none means `auto`.
    ///
    /// # Errors
    /// [`WiresError::Request`]: the words do not go together.
    pub fn from_names(names: &[WireName]) -> Result<Self, WiresError> {
        use WireName::{Auto, Ofi, Shm, Udp};
        if names.is_empty() || names == [Auto] {
            return Ok(Self::AUTO);
        }
        let count = |name| names.iter().filter(|given| **given == name).count();
        let far = match [Auto, Udp, Ofi, Shm].map(count) {
            [0, 0, 0, 1] => RemoteTransport::Nothing,
            [0, 1, 0, 0 | 1] => RemoteTransport::Udp,
            [0, 0, 1, 0 | 1] => RemoteTransport::Ofi,
            [0, 1, 1, 0 | 1] => RemoteTransport::Both,
            _ => {
                return Err(WiresError::Request(
                    "--wire takes auto, or some of shm, udp and ofi: shm,ofi for memory within a host and libfabric \
                     between hosts, ofi,udp for both between hosts, one of which goes on when the other fails"
                        .to_owned(),
                ));
            }
        };
        Ok(Self {
            near: if count(Shm) == 1 { LocalTransport::Always } else { LocalTransport::Never },
            far,
        })
    }

    /// Says what ranks talk over in a laboratory, where each has a host of its own: UDP, whose
    /// packets queues see one by one; where one-sided writes are needed libfabric, if it can be had
    /// and nothing else is asked for, else UDP that becomes reliable.
    ///
    /// # Errors
    /// [`WiresError::Request`]: shared memory is asked for.
    pub fn in_lab(self, need: WireNeeds) -> Result<RemoteTransport, WiresError> {
        match (self.far, need) {
            (RemoteTransport::Nothing, _) => Err(WiresError::Request(
                "hosts of a lab share no memory; --wire takes udp or ofi there".to_owned(),
            )),
            (RemoteTransport::Udp, _)
            | (RemoteTransport::Best, WireNeeds::Datagrams)
            | (_, WireNeeds::Packets) => Ok(RemoteTransport::Udp),
            (RemoteTransport::Best, WireNeeds::Writes | WireNeeds::ShortWrites) => {
                Ok(RemoteTransport::Best)
            }
            (RemoteTransport::Ofi, _) => Ok(RemoteTransport::Ofi),
            (RemoteTransport::Both, _) => Ok(RemoteTransport::Both),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_lab__writes_take_libfabric_only_where_it_is_unless_it_is_asked_for() {
        use WireName::{Ofi, Shm, Udp};
        let far = |names: &[WireName]| {
            WireRequest::from_names(names)
                .and_then(|request| request.in_lab(WireNeeds::Writes))
                .ok()
        };
        assert_eq!(
            [far(&[]), far(&[Udp]), far(&[Ofi])],
            [RemoteTransport::Best, RemoteTransport::Udp, RemoteTransport::Ofi].map(Some)
        );
        assert_eq!(far(&[Shm]), None);
        assert_eq!(WireRequest::AUTO.in_lab(WireNeeds::Datagrams).ok(), Some(RemoteTransport::Udp));
    }

    #[test]
    fn from_names__words_that_do_not_go_together_are_refused() {
        use WireName::{Auto, Ofi, Shm, Udp};
        assert_eq!(WireRequest::from_names(&[]).ok(), WireRequest::from_names(&[Auto]).ok());
        assert_eq!(
            WireRequest::from_names(&[Shm, Ofi]).ok(),
            Some(WireRequest { near: LocalTransport::Always, far: RemoteTransport::Ofi })
        );
        assert_eq!(
            WireRequest::from_names(&[Udp, Ofi]).ok(),
            Some(WireRequest { near: LocalTransport::Never, far: RemoteTransport::Both })
        );
        assert_eq!(
            WireRequest::from_names(&[Ofi, Shm, Udp]).ok(),
            Some(WireRequest { near: LocalTransport::Always, far: RemoteTransport::Both })
        );
        for names in [&[Auto, Shm][..], &[Shm, Shm], &[Udp, Udp], &[Ofi, Udp, Ofi]] {
            let said = WireRequest::from_names(names).expect_err("no meaning").to_string();
            assert!(said.contains("ofi,udp for both between hosts"), "{said}");
        }
    }
}
