//! Counts events: each decision's reason is how many there were, and the count outlives a swap.
#![no_std]

use pol::{abi, Config, Error, Event, Observe, Out, Policy, State, Step};

const STATE_VERSION: u16 = 1;

struct Mine {
    seen: u64,
}

impl Policy for Mine {
    const NAME: &'static str = "mine";
    const VERSION: &'static str = "1.0.0";
    const STATE_VERSION: u16 = STATE_VERSION;
    const CAPS_OPTIONAL: u64 =
        abi::CAP_CHUNK_LENGTHS | abi::CAP_LOG | abi::CAP_EVENTS | abi::CAP_STATE;

    fn new(_config: &mut Config, _slots: usize) -> Result<Self, Error> {
        Ok(Mine { seen: 0 })
    }

    fn decide(&mut self, step: &Step, out: &mut Out) -> Result<(), Error> {
        if step.header.n_slots > 0 && step.record(0).prefills() {
            let r = step.record(0);
            out.add(pol::Decision {
                slot: 0,
                tokens: abi::TOKENS_AUTO,
                id_low: r.id as u32,
                reason: self.seen as u16,
                ..Default::default()
            });
        }
        Ok(())
    }
}

impl Observe for Mine {
    fn observe(&mut self, events: &[Event]) -> Result<(), Error> {
        for e in events {
            if e.extra == 77 {
                panic!("it was 77");
            }
            if e.extra == 78 {
                return Err(Error::new(abi::CODE_BAD_ARGUMENT, "it was 78"));
            }
        }
        self.seen += events.len() as u64;
        Ok(())
    }
}

impl State for Mine {
    fn save(&self, to: &mut [u8]) -> usize {
        if let Some(to) = to.get_mut(..8) {
            to.copy_from_slice(&self.seen.to_le_bytes());
        }
        8
    }

    fn load(&mut self, from: &[u8], version: u16) -> Result<(), Error> {
        if version != STATE_VERSION {
            return Err(Error::new(abi::CODE_STATE_VERSION, "not this version"));
        }
        let mut bytes = [0; 8];
        if from.len() != bytes.len() {
            return Err(Error::new(abi::CODE_BAD_ARGUMENT, "not eight bytes"));
        }
        bytes.copy_from_slice(from);
        self.seen = u64::from_le_bytes(bytes);
        Ok(())
    }
}

pol::policy_with_state!(Mine);
pol::policy_observes!(Mine);
