/**
 * Keeps how much service each tenant had, by its weight: the one with the least is next. A tenant that
 * comes back after a rest starts no lower than the least of those that are there: rest is not saved up.
 * Tenants beyond the number made room for share the last counter.
 */
export class Counters {
  private service: StaticArray<i64>; // thousandths of a token at weight 1
  private here: StaticArray<bool>;

  constructor(tenants: u32) {
    const n = max<u32>(tenants, 1);
    this.service = new StaticArray<i64>(n);
    this.here = new StaticArray<bool>(n);
  }

  private at(tenant: u32): u32 {
    return min<u32>(tenant, this.service.length - 1);
  }

  /** The tenant's service so far. */
  of(tenant: u32): i64 {
    return this.service[this.at(tenant)];
  }

  /** The tenant has requests. */
  enter(tenant: u32): void {
    const at = this.at(tenant);
    if (this.here[at]) return;
    let least = i64.MAX_VALUE;
    for (let i = 0; i < this.service.length; i++) {
      if (this.here[i] && this.service[i] < least) least = this.service[i];
    }
    if (least != i64.MAX_VALUE && this.service[at] < least) this.service[at] = least;
    this.here[at] = true;
  }

  /** The tenant has no requests any more. */
  leave(tenant: u32): void {
    this.here[this.at(tenant)] = false;
  }

  /** That many tokens were computed for the tenant; its weight is in thousandths, 0 means 1000. */
  charge(tenant: u32, tokens: u32, weightMilli: u32): void {
    const at = this.at(tenant);
    this.service[at] = this.service[at] + amount(tokens, weightMilli);
  }

  /** Takes back what was charged at the same weight and not computed. */
  refund(tenant: u32, tokens: u32, weightMilli: u32): void {
    const at = this.at(tenant);
    this.service[at] = this.service[at] - amount(tokens, weightMilli);
  }
}

function amount(tokens: u32, weightMilli: u32): i64 {
  const weight: i64 = weightMilli ? weightMilli : 1000;
  return (<i64>tokens * 1000000) / weight;
}
