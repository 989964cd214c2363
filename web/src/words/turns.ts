/** When something is loaded anew; pure, milliseconds are arguments. */

const SOON = 60;

export class Turns {
  private turn = 0;
  /** The newest turn that was answered. */
  private answered = 0;
  private loading = 0;
  private begun = 0;
  private took = 0;
  private missed = false;

  /** A load begins; returns its turn. */
  begin(now: number): number {
    this.begun = now;
    this.loading += 1;
    this.missed = false;
    return ++this.turn;
  }

  /** Whether the answer of a turn is to be shown: no newer one was. However late, it beats none. */
  shows(turn: number): boolean {
    const newer = turn > this.answered;
    if (newer) this.answered = turn;
    return newer;
  }

  /** A load has come to its end. */
  end(now: number): void {
    this.took = now - this.begun;
    this.loading -= 1;
  }

  /**
   * How long from now news are followed by a load, at least `quiet` after the last one began and
   * with a pause as long as that one took; null: one is under way, and another one follows it.
   */
  afterNews(now: number, quiet: number): number | null {
    this.missed = this.loading > 0;
    return this.missed ? null : Math.max(SOON, this.begun + Math.max(quiet, 2 * this.took) - now);
  }

  /** How long from now the next load is due if no news come; null: one is under way. */
  afterEnd(now: number, every: number | null, quiet: number): number | null {
    if (this.loading > 0) return null;
    return this.missed ? this.afterNews(now, quiet) : every;
  }
}
