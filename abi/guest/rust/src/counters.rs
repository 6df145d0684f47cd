//! How much service each tenant had.

use crate::abi;
use crate::memory::take;
use crate::Error;

/// Keeps how much service each tenant had, by its weight: the one with the least is next. A tenant that
/// comes back after a rest starts no lower than the least of those that are there: rest is not saved up.
/// Tenants beyond the number made room for share the last counter.
pub struct Counters {
    service: &'static mut [i64], // Thousandths of a token at weight 1.
    here: &'static mut [bool],
    /// The least service of those that are there, as long as nothing made it another.
    least: Option<i64>,
}

impl Counters {
    /// Takes memory for this many tenants, in [`crate::Policy::new`].
    pub fn new(tenants: usize) -> Result<Counters, Error> {
        const NONE: Error =
            Error::new(abi::CODE_OUT_OF_MEMORY, "no memory for the tenants' counters");
        let n = tenants.max(1);
        Ok(Counters { service: take(n).ok_or(NONE)?, here: take(n).ok_or(NONE)?, least: None })
    }

    fn at(&self, tenant: u32) -> usize {
        (tenant as usize).min(self.service.len() - 1)
    }

    /// The tenant's service so far.
    pub fn of(&self, tenant: u32) -> i64 {
        self.service[self.at(tenant)]
    }

    /// Does the tenant have requests?
    pub fn here(&self, tenant: u32) -> bool {
        self.here[self.at(tenant)]
    }

    /// Sets what a state that was saved says of the tenant: its service, and whether it had requests. One
    /// that had enters without being lifted.
    pub fn restore(&mut self, tenant: u32, service: i64, here: bool) {
        let at = self.at(tenant);
        self.service[at] = service;
        self.here[at] = here;
        self.least = None;
    }

    /// The tenant has requests.
    pub fn enter(&mut self, tenant: u32) {
        let at = self.at(tenant);
        if self.here[at] {
            return;
        }
        if self.least.is_none() {
            let there = self.here.iter().zip(self.service.iter()).filter(|(&here, _)| here);
            self.least = there.map(|(_, &service)| service).min();
        }
        match self.least {
            Some(least) => self.service[at] = self.service[at].max(least),
            None => self.least = Some(self.service[at]), // It is the only one.
        }
        self.here[at] = true;
    }

    /// The tenant has no requests any more.
    pub fn leave(&mut self, tenant: u32) {
        let at = self.at(tenant);
        self.here[at] = false;
        self.forget(at);
    }

    /// That many tokens were computed for the tenant; its weight is in thousandths, 0 means 1000.
    pub fn charge(&mut self, tenant: u32, tokens: u32, weight_milli: u32) {
        let at = self.at(tenant);
        self.forget(at);
        self.service[at] += service(tokens, weight_milli);
    }

    /// Takes back what was charged at the same weight and not computed.
    pub fn refund(&mut self, tenant: u32, tokens: u32, weight_milli: u32) {
        let at = self.at(tenant);
        self.service[at] -= service(tokens, weight_milli);
        self.least = None;
    }

    /// The least is another one when it was this tenant's.
    fn forget(&mut self, at: usize) {
        if self.least == Some(self.service[at]) {
            self.least = None;
        }
    }
}

fn service(tokens: u32, weight_milli: u32) -> i64 {
    let weight = if weight_milli == 0 { 1000 } else { i64::from(weight_milli) };
    i64::from(tokens) * 1_000_000 / weight
}
