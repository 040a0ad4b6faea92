package main

var core = []mutant{}
