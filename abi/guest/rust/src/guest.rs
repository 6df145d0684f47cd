//! The exports' bodies and the host functions.

use core::fmt::Write;
use core::mem::size_of;

use crate::abi;
use crate::memory::Region;
use crate::{Config, Descriptor, Error, Event, Header, Observe, Out, Policy, Record};
use crate::{State as Stateful, Step};

/// All that the crate keeps between calls. A guest is called by one thread, one call at a time.
pub(crate) struct State {
    pub regions: [Region; abi::BUFFER_PEERS as usize + 1],
    pub next: usize,
    pub deciding: bool,
    error: Text,
    descriptor: Descriptor,
}

static mut STATE: State = State {
    regions: [Region { at: 0, bytes: 0 }; abi::BUFFER_PEERS as usize + 1],
    next: 0,
    deciding: false,
    error: Text { bytes: [0; 512], len: 0 },
    descriptor: Descriptor {
        magic: 0,
        size: 0,
        minor: 0,
        oldest_host_minor: 0,
        state_version: 0,
        flags: 0,
        caps_required: 0,
        caps_optional: 0,
        name_ptr: 0,
        name_len: 0,
        version_ptr: 0,
        version_len: 0,
        record_bytes: 0,
        header_bytes: 0,
        reserved: 0,
    },
};

/// Callers keep the reference for one statement, or for fields nobody else touches meanwhile.
pub(crate) fn state() -> &'static mut State {
    unsafe { &mut *core::ptr::addr_of_mut!(STATE) }
}

/// A message of bounded length; what does not fit is cut.
pub(crate) struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        for &b in s.as_bytes() {
            if self.len == self.bytes.len() {
                break;
            }
            self.bytes[self.len] = b;
            self.len += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) fn written() -> &'static str {
    let text = &state().error;
    core::str::from_utf8(&text.bytes[..text.len]).unwrap()
}

/// The message buffer, emptied.
pub(crate) fn message() -> &'static mut Text {
    let text = &mut state().error;
    text.len = 0;
    text
}

/// A policy that was started, or is not yet.
pub struct Running<P>(Option<P>);

impl<P> Running<P> {
    pub const NONE: Running<P> = Running(None);

    #[cfg(test)]
    pub(crate) fn policy(&self) -> Option<&P> {
        self.0.as_ref()
    }
}

/// The body of pol_abi_v1.
pub fn describe<P: Policy>() -> usize {
    let d = &mut state().descriptor;
    *d = Descriptor {
        magic: abi::MAGIC,
        size: size_of::<Descriptor>() as u16,
        minor: abi::MINOR,
        state_version: P::STATE_VERSION,
        flags: P::FLAGS,
        caps_required: P::CAPS_REQUIRED,
        caps_optional: P::CAPS_OPTIONAL,
        name_ptr: P::NAME.as_ptr() as usize as u32,
        name_len: P::NAME.len() as u32,
        version_ptr: P::VERSION.as_ptr() as usize as u32,
        version_len: P::VERSION.len() as u32,
        record_bytes: size_of::<Record>() as u32,
        header_bytes: size_of::<Header>() as u32,
        ..Descriptor::default()
    };
    d as *const Descriptor as usize
}

/// The body of pol_init.
pub fn start<P: Policy>(running: &mut Running<P>, len: i32) -> i32 {
    let config = state().regions[abi::BUFFER_CONFIG as usize];
    let slots = state().regions[abi::BUFFER_RECORDS as usize].bytes / size_of::<Record>();
    let text: &[u8] = match (config.at, len) {
        (0, _) | (_, i32::MIN..=0) => b"{}",
        // The host wrote that many bytes into the region it asked for.
        (at, _) => unsafe { core::slice::from_raw_parts(at as *const u8, len as usize) },
    };
    let mut config = Config::new(text);
    state().deciding = false;
    let made = P::new(&mut config, slots);
    state().deciding = true;
    match made.and_then(|policy| config.end().map(|()| policy)) {
        Ok(policy) => {
            running.0 = Some(policy);
            0
        }
        Err(e) => fail(e),
    }
}

/// The body of pol_decide.
///
/// # Safety
/// header is the address of a step header, and what it points to is as SPEC.md says.
pub unsafe fn step<P: Policy>(running: &mut Running<P>, header: usize) -> i32 {
    let header = &*(header as *const Header);
    let known = header.magic == abi::MAGIC
        && header.header_size as usize >= size_of::<Header>()
        && header.record_stride as usize >= size_of::<Record>()
        && header.decision_stride as usize == size_of::<crate::Decision>();
    let policy = match (&mut running.0, known) {
        (Some(policy), true) => policy,
        _ => return fail(Error::new(abi::CODE_BAD_ARGUMENT, "the step header is not of ABI version 1")),
    };
    let mut out = Out::at(header.decisions_ptr as usize, header.decisions_cap as usize);
    match policy.decide(&Step::at(header), &mut out) {
        Ok(()) => out.len() as i32,
        Err(e) => fail(e),
    }
}

/// The region that a state goes through, as far as it is to be used.
fn state_region(bytes: u32) -> &'static mut [u8] {
    let region = state().regions[abi::BUFFER_STATE as usize];
    match (region.at, region.bytes.min(bytes as usize)) {
        (0, _) | (_, 0) => &mut [],
        // The region is the host's and ours, and nobody else holds it during a call.
        (at, len) => unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) },
    }
}

const NOT_STARTED: Error = Error::new(abi::CODE_BAD_ARGUMENT, "the policy has not been started");

/// The body of pol_observe.
pub fn observe<P: Observe>(running: &mut Running<P>, n: u32) -> i32 {
    let region = state().regions[abi::BUFFER_EVENTS as usize];
    if n as usize > region.bytes / size_of::<Event>() {
        return fail(Error::new(abi::CODE_BAD_ARGUMENT, "more events than fit their region"));
    }
    let events: &[Event] = match n {
        0 => &[],
        // The host wrote so many into the region that it asked for.
        _ => unsafe { core::slice::from_raw_parts(region.at as *const Event, n as usize) },
    };
    let heard = match &mut running.0 {
        Some(policy) => policy.observe(events),
        None => Err(NOT_STARTED),
    };
    heard.map_or_else(fail, |()| 0)
}

/// The body of pol_save.
pub fn save<P: Stateful>(running: &mut Running<P>, cap: u32) -> i32 {
    match &running.0 {
        Some(policy) => policy.save(state_region(cap)) as i32,
        None => fail(NOT_STARTED),
    }
}

/// The body of pol_load.
pub fn load<P: Stateful>(running: &mut Running<P>, len: u32, version: u32) -> i32 {
    let loaded = match &mut running.0 {
        Some(policy) => policy.load(state_region(len), version as u16),
        None => Err(NOT_STARTED),
    };
    loaded.map_or_else(fail, |()| 0)
}

/// Keeps an error's message for the host and gives its code. An empty one keeps what was written before.
fn fail(e: Error) -> i32 {
    if !e.why.is_empty() {
        let _ = message().write_str(e.why);
    }
    e.code
}

/// The body of pol_last_error.
pub fn last_error() -> u64 {
    let text = &state().error;
    (text.bytes.as_ptr() as u64) << 32 | text.len as u64
}

/// The body of the panic handler: the host reads the message after the trap.
#[cfg(target_arch = "wasm32")]
pub fn panicked(info: &core::panic::PanicInfo) -> ! {
    let _ = write!(message(), "{}", info);
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_arch = "wasm32"))]
pub fn panicked(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[cfg(target_arch = "wasm32")]
mod host {
    #[link(wasm_import_module = "pol_v1")]
    extern "C" {
        #[link_name = "log"]
        pub fn log(level: i32, at: *const u8, len: usize);
        #[link_name = "log_level"]
        pub fn log_level() -> i32;
        #[link_name = "granted"]
        pub fn granted() -> u64;
    }
}

/// Writes a line to the engine's log; levels are LOG_DEBUG to LOG_ERROR.
#[cfg(target_arch = "wasm32")]
pub fn log(level: i32, line: &str) {
    unsafe { host::log(level, line.as_ptr(), line.len()) }
}

/// The lowest level that is written.
#[cfg(target_arch = "wasm32")]
pub fn log_level() -> i32 {
    unsafe { host::log_level() }
}

/// The capabilities this module got.
#[cfg(target_arch = "wasm32")]
pub fn granted() -> u64 {
    unsafe { host::granted() }
}

#[cfg(not(target_arch = "wasm32"))]
pub fn log(_level: i32, _line: &str) {}

#[cfg(not(target_arch = "wasm32"))]
pub fn log_level() -> i32 {
    abi::LOG_OFF
}

#[cfg(not(target_arch = "wasm32"))]
pub fn granted() -> u64 {
    abi::CAP_CHUNK_LENGTHS
}
