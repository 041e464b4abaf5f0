-- Forget conversations that have expired, as many as the given number at a time.
sweep(ARGV[3])
return outcome()
